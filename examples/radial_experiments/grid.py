"""The settings in which a small network learns (figure 4)."""

import math

import keras
import numpy as np

import keras_bdl as bdl
from radial_experiments.layout import text_table
from radial_experiments.settings import BATCH
from radial_experiments.settings import CROSS_ENTROPY
from radial_experiments.settings import KINDS
from radial_experiments.settings import net

SAMPLES = 16  # in each prediction, as in the paper
# Bounds on the accuracy with ten classes, chosen before the first run.
GUESSING, GOOD = 0.2, 0.9


def measure(run):
    """Returns accuracies by method, rho, learning rate and seed."""
    x, y = run.data.train
    inputs, labels = run.data.test
    shape = (len(run.rhos), len(run.learning_rates), run.seeds)
    found = {kind: np.zeros(shape) for kind in KINDS}
    bar = keras.utils.Progbar(len(KINDS) * math.prod(shape), unit_name="run")
    for kind in KINDS:
        # One model for all settings: nothing is traced again.
        model = net(run, kind, rho=0.0)
        model.compile(keras.optimizers.Adam(), CROSS_ENTROPY)
        model.optimizer.build(model.trainable_variables)
        untrained = [v.numpy() for v in model.optimizer.variables]
        for i, j, seed in np.ndindex(shape):
            keras.utils.set_random_seed(seed)
            model.set_weights(net(run, kind, run.rhos[i]).get_weights())
            for variable, value in zip(
                model.optimizer.variables, untrained, strict=True
            ):
                variable.assign(value)
            model.optimizer.learning_rate = run.learning_rates[j]
            model.fit(x, y, batch_size=BATCH, epochs=run.grid_epochs, verbose=0)
            p = bdl.predict(model, inputs, samples=SAMPLES, verbose=0)
            found[kind][i, j, seed] = np.mean(p.predicted_classes == labels)
            bar.add(1)
    return found


def shares(found):
    """Returns the share of guessing runs and of good runs, by method."""
    return {
        kind: {
            "guessing": float(np.mean(of < GUESSING)),
            "good": float(np.mean(of >= GOOD)),
        }
        for kind, of in found.items()
    }


def table(run, found):
    heads = ("method", "rho", *(f"rate {r:g}" for r in run.learning_rates))
    rows = [
        (kind, rho, *row)
        for kind, of in found.items()
        for rho, row in zip(run.rhos, of.mean(-1), strict=True)
    ]
    lines = [
        f"{kind}: {of['good']:.0%} of the runs with an accuracy of at least "
        f"{GOOD}, {of['guessing']:.0%} below {GUESSING}"
        for kind, of in shares(found).items()
    ]
    return "\n".join([text_table(heads, rows), "", *lines])


def draw(run, found):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 2, figsize=(8, 3.6), layout="constrained", sharey=True
    )
    for ax, (kind, of) in zip(axes, found.items(), strict=True):
        mean = of.mean(-1)
        image = ax.imshow(mean, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        for i, j in np.ndindex(mean.shape):
            color = "white" if mean[i, j] < 0.5 else "black"
            ax.text(
                j, i, f"{mean[i, j]:.2f}", color=color, ha="center", va="center"
            )
        ax.set_xticks(
            range(len(run.learning_rates)),
            [f"{r:g}" for r in run.learning_rates],
        )
        ax.set_yticks(range(len(run.rhos)), [f"{r:g}" for r in run.rhos])
        ax.set_xlabel("learning rate")
        ax.set_title(kind, loc="left", weight="bold")
    axes[0].set_ylabel("initial rho")
    figure.colorbar(image, ax=axes, label="test accuracy")
    return figure
