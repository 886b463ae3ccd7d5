"""Compares natural-gradient variational inference with Adam and MC dropout.

    python examples/natural_gradient.py [--smoke] [--seeds 3]
        [--out results/natural_gradient]

LeNet-5 learns the digits 0 to 7 from 800 of scikit-learn's images, with and
without augmentation by shifts. VOGN and IVON train the same network as Adam,
and learn a posterior. All methods then predict new images of these digits,
images of eights and nines, and noise. Prints a table, and draws convergence and
uncertainty.
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_bdl as bdl

BATCH = 64
DATA = {False: "no augmentation", True: "augmentation"}
# Augmentation factor: the shifts multiply the number of images by this.
AUGMENTATION_FACTOR = 5.0
# With so few images, the posterior at a temperature of 1 is too wide.
TEMPERATURE = 0.1


class Run:
    """The data, and the length of each training."""

    def __init__(self, smoke):
        self.epochs, self.every, self.draws = 50, 2, 10
        self.kinds = tuple(DATA)
        self.filters, self.units = (6, 16), (120, 84)  # of LeNet-5
        if smoke:
            self.epochs, self.every, self.draws = 2, 1, 2
            self.kinds = (True,)
            self.filters, self.units = (4,), (8,)
        self.data = bdl.datasets.load(
            "digits", classes=range(8), validation_size=200, seed=0
        )
        self.examples = len(self.data.train[0])
        self.steps = self.epochs * -(-self.examples // BATCH)

    def batches(self, augmented, seed):
        def shift(x, y):
            x = tf.pad(x, ((1, 1), (1, 1), (0, 0)), "SYMMETRIC")
            return tf.image.random_crop(x, self.data.input_shape, seed), y

        images = tf.data.Dataset.from_tensor_slices(self.data.train)
        images = images.cache().shuffle(self.examples, seed=seed)
        if augmented:
            images = images.map(shift)
        return images.batch(BATCH)

    def cosine(self, rate):
        return keras.optimizers.schedules.CosineDecay(rate, self.steps)

    def fit(self, model, optimizer, augmented, seed, **compile):
        model.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compile,
        )
        history = model.fit(
            self.batches(augmented, seed),
            epochs=self.epochs,
            shuffle=False,  # the data are shuffled already
            verbose=0,
            validation_data=self.data.validation,
            validation_freq=self.every,
        )
        return history.history


def lenet(run, dropout=0.0):
    """LeNet-5 with padding, so that 8 x 8 pixels are enough."""
    inputs = x = keras.Input(run.data.input_shape)
    for filters in run.filters:
        x = keras.layers.Conv2D(filters, 5, padding="same", activation="relu")(
            x
        )
        x = keras.layers.MaxPooling2D()(x)
        x = keras.layers.Dropout(dropout)(x)
    x = keras.layers.Flatten()(x)
    for units in run.units:
        x = keras.layers.Dense(units, "relu")(x)
        x = keras.layers.Dropout(dropout)(x)
    return bdl.Model(inputs, keras.layers.Dense(run.data.num_classes)(x))


# A method returns its model, its posterior and the history of its training.


def adam(run, augmented, seed):
    model = lenet(run)
    optimizer = keras.optimizers.Adam(run.cosine(2e-3))
    return model, None, run.fit(model, optimizer, augmented, seed)


def mc_dropout(run, augmented, seed):
    model = lenet(run, dropout=0.1)
    optimizer = keras.optimizers.Adam(run.cosine(2e-3))
    history = run.fit(model, optimizer, augmented, seed)
    return model, bdl.posteriors.MCDropout(), history


def variational(make, rate, run, augmented, seed, **kwargs):
    model = lenet(run)
    optimizer = make(
        run.cosine(rate),
        prior_precision=50.0,
        augmentation_factor=AUGMENTATION_FACTOR if augmented else 1.0,
        seed=seed,
        **kwargs,
    )
    # Validation uses posterior samples, too.
    history = run.fit(model, optimizer, augmented, seed, samples=run.draws)
    return model, None, history  # the optimizer holds the posterior


def vogn(run, augmented, seed):
    # A cold start: the temperature rises in the first half of the training.
    ramp = bdl.schedules.LinearRamp(
        TEMPERATURE / 10, TEMPERATURE, end_step=run.steps // 2
    )
    return variational(
        bdl.VOGN, 2e-3, run, augmented, seed,
        temperature=ramp, beta_2=0.9, damping=5e-3,
        initial_curvature="first_batch",
    )  # fmt: skip


def ivon(run, augmented, seed):
    # The default beta_2 averages over 100,000 steps; this run has 650.
    return variational(
        bdl.IVON, 0.2, run, augmented, seed,
        temperature=TEMPERATURE, beta_2=0.999, initial_curvature=0.1,
    )  # fmt: skip


METHODS = {"Adam": adam, "MC dropout": mc_dropout, "VOGN": vogn, "IVON": ivon}


def train(run, seeds):
    """Returns reports, histories and predictions by data and method."""
    reports, histories, predictions = {}, {}, {}
    total = len(run.kinds) * len(METHODS) * seeds
    for seed in range(seeds):
        for augmented in run.kinds:
            for name, method in METHODS.items():
                key = augmented, name
                done = sum(map(len, reports.values())) + 1
                print(f"[{done}/{total}] {name}, {DATA[augmented]}", end=" ")
                start = time.perf_counter()
                keras.utils.set_random_seed(seed)
                model, posterior, history = method(run, augmented, seed)
                samples = {} if name == "Adam" else {"samples": 3 * run.draws}
                found = {
                    data: bdl.predict(model, x, posterior, verbose=0, **samples)
                    for data, x in (
                        ("test", run.data.test[0]),
                        *run.data.ood.items(),
                    )
                }
                test = found.pop("test")
                report = bdl.evaluate(test, run.data.test[1], ood=found)
                reports.setdefault(key, []).append(report)
                histories.setdefault(key, []).append(history)
                predictions[key] = test, found["held_out_classes"]
                print(f"{time.perf_counter() - start:.0f} s", flush=True)
    return reports, histories, predictions


def table(reports):
    """Means over the seeds, with their standard errors."""

    def numbers(report):
        yield from (report.accuracy, report.nll, report.brier, report.ece)
        for scores in report.ood.values():
            yield scores["entropy"]["auroc"]

    unknown = [f"AUROC {n}" for n in next(iter(reports.values()))[0].ood]
    heads = ["accuracy", "NLL", "Brier", "ECE", *unknown]
    lines = ["".ljust(32) + "".join(h.rjust(24) for h in heads)]
    for (augmented, name), of_seeds in reports.items():
        cells = []
        for values in zip(*map(numbers, of_seeds), strict=True):
            cell = f"{np.mean(values):.4f}"
            if len(values) > 1:
                error = np.std(values, ddof=1) / len(values) ** 0.5
                cell += f" ± {error:.4f}"
            cells.append(cell.rjust(24))
        lines.append(f"{name}, {DATA[augmented]}".ljust(32) + "".join(cells))
    return "\n".join(lines)


def draw_convergence(run, histories):
    """Draws accuracy and NLL of validation data along training."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        2, 2, figsize=(9, 6), sharex=True, sharey="row", layout="constrained"
    )
    looks = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
    colors = dict(zip(METHODS, looks, strict=True))
    epochs = np.arange(run.every, run.epochs + 1, run.every)
    for (augmented, name), of_seeds in histories.items():
        for row, key in enumerate(("val_accuracy", "val_loss")):
            curve = np.mean([history[key] for history in of_seeds], 0)
            axes[row, int(augmented)].plot(
                epochs, curve, label=name, color=colors[name]
            )
    for augmented, title in DATA.items():
        axes[0, int(augmented)].set_title(title)
        axes[1, int(augmented)].set(xlabel="epoch", yscale="log")
    axes[0, 0].set_ylabel("validation accuracy")
    axes[1, 0].set_ylabel("validation NLL")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#E6E6E6", linewidth=0.8)
    axes[0, 0].legend(frameon=False)
    return figure


def draw_entropies(predictions):
    """Draws the entropies of each method, with and without augmentation."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(DATA), len(METHODS), figsize=(13, 6), sharex=True, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for (augmented, name), (inside, outside) in predictions.items():
        ax = axes[int(augmented), list(METHODS).index(name)]
        bdl.plots.entropy_histograms(inside, outside, num_bins=20, ax=ax)
        ax.set_title(f"{name}, {DATA[augmented]}", fontsize="medium")
        ax.label_outer()
        if ax is not axes[0, 0] and ax.get_legend() is not None:
            ax.get_legend().remove()
    return figure


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--out", type=Path, default=Path("results/natural_gradient")
    )
    args = parser.parse_args()

    run = Run(args.smoke)
    reports, histories, predictions = train(run, args.seeds)
    args.out.mkdir(parents=True, exist_ok=True)
    text = table(reports)
    (args.out / "table.txt").write_text(text + "\n")
    figure = draw_convergence(run, histories)
    figure.savefig(args.out / "convergence.png", dpi=150)
    figure = draw_entropies(predictions)
    figure.savefig(args.out / "entropy.png", dpi=150)
    print(f"\nMeans over {args.seeds} seeds, with standard errors\n\n{text}\n")
    print(f"Table and pictures: {args.out.resolve()}")


if __name__ == "__main__":
    main()
