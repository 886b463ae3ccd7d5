"""Compares the gradient noise of Radial and mean-field layers.

    python examples/radial_robustness.py [--smoke] [--seeds 3]
                                         [--out results/radial_robustness]

Runs three experiments of the Radial paper on one CPU and embedded data:
gradient noise against the scale of the weights, in a convolution with a
3x3x512x512 kernel (figure 6); gradient noise along the training of a small
convolutional network on scikit-learn's digits (figure 7); and the share of
settings of initial rho and learning rate with which such a network learns
(figure 4). Prints tables, and writes tables, pictures and all numbers to a
folder.
"""

import argparse
import json
import math
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_bdl as bdl

KINDS = {"mean-field": "MeanField", "Radial": "Radial"}
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
BATCH = 128
SAMPLES = 16  # in each prediction, as in the paper
# Bounds on the accuracy with ten classes, chosen before the first run.
GUESSING, GOOD = 0.2, 0.9
NUMBERS = ("variance", "variance_error", "snr")


class Run:
    """The data, and the length of each training."""

    def __init__(self, smoke, seeds):
        self.tasks = ("regression", "classification")
        self.channels, self.draws = 512, 20
        self.stddevs = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
        self.epochs, self.every = 60, 4
        self.rhos = (-6.0, -4.0, -2.0, 0.0)
        self.learning_rates = (0.03, 0.003, 0.0003)
        self.grid_epochs, self.seeds = 30, seeds
        self.convolutions = ((16, 1), (32, 2), (32, 1))  # filters and strides
        if smoke:
            self.tasks = ("classification",)
            self.channels, self.draws = 4, 3
            self.stddevs = (0.01, 1.0)
            self.epochs, self.every = 2, 1
            self.rhos, self.learning_rates = (-6.0, 0.0), (0.01,)
            self.grid_epochs, self.seeds = 1, 1
            self.convolutions = ((4, 2),)
        self.data = bdl.datasets.load("digits", classes=range(10), seed=0)


def layer(kind, of, *args, rho, **kwargs):
    return getattr(bdl.layers, KINDS[kind] + of)(
        *args,
        kernel_initializer="he_normal",
        rho_initializer=keras.initializers.Constant(rho),
        **kwargs,
    )


def rho_of(stddev):
    return stddev + math.log(-math.expm1(-stddev))


# Figure 6: many draws of one convolution at its initial means.


def wide(run, kind, task):
    """Returns a compiled model with one variational convolution.

    For classification, a pooling and a dense layer follow the convolution.
    """
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4, 4, run.channels))
    x = layer(
        kind,
        "Conv2D",
        run.channels,
        3,
        padding="same",
        use_bias=False,
        activation=None if task == "regression" else "relu",
        rho=0.0,
        name="convolution",
    )(inputs)
    if task == "classification":
        x = keras.layers.GlobalAveragePooling2D()(x)
        x = keras.layers.Dense(10)(x)
    model = keras.Model(inputs, x)
    # The likelihood whose gradient is that of the mean squared error.
    gaussian = bdl.likelihoods.Gaussian((run.channels / 2) ** 0.5)
    loss = CROSS_ENTROPY if task == "classification" else gaussian
    model.compile("sgd", loss)
    return model


def against_scale(run):
    """Returns reports by task, method and scale, and the size of a kernel."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 4, 4, run.channels)).astype("float32")
    targets = {
        "regression": rng.normal(size=x.shape).astype("float32"),
        "classification": rng.integers(0, 10, len(x)),
    }
    targets = {task: targets[task] for task in run.tasks}
    size = 9 * run.channels**2
    # With these scales, the standard deviations of weights of both methods
    # cover the same range.
    scales = {
        "mean-field": run.stddevs,
        "Radial": run.stddevs + tuple(s * size**0.5 for s in run.stddevs[2:]),
    }
    bar = keras.utils.Progbar(
        len(targets) * sum(map(len, scales.values())), unit_name="scale"
    )
    reports = {task: {kind: {} for kind in KINDS} for task in targets}
    for task, y in targets.items():
        for kind in KINDS:
            model = wide(run, kind, task)
            rho = model.get_layer("convolution").kernel_rho
            for stddev in scales[kind]:
                rho.assign(np.full(rho.shape, rho_of(stddev), "float32"))
                reports[task][kind][stddev] = bdl.diagnostics.gradient_variance(
                    model, x, y, samples=run.draws, verbose=0
                )
                bar.add(1)
    return reports, size


def table(heads, rows):
    """Returns a table with equal columns, and numbers of four digits."""
    lines = ["".join(head.rjust(16) for head in heads)]
    for row in rows:
        cells = [c if isinstance(c, str) else f"{c:.4g}" for c in row]
        lines.append("".join(cell.rjust(16) for cell in cells))
    return "\n".join(lines)


def scale_table(reports, size):
    heads = ("task", "method", "sigma", "sd of weight")
    rows = []
    for task, of_task in reports.items():
        for kind, found in of_task.items():
            for stddev, report in found.items():
                of = report.means
                row = [task, kind, stddev, stddev / spread(kind, size)]
                rows.append(row + [of[n] for n in NUMBERS])
    return table((*heads, *NUMBERS), rows)


def spread(kind, size):
    """Returns the ratio of a weight's scale sigma to its standard deviation."""
    return size**0.5 if kind == "Radial" else 1.0


def draw_scale(run, reports, size):
    plt = bdl.plots.canvas.pyplot()
    figure, axes = plt.subplots(
        len(reports),
        2,
        figsize=(9, 0.4 + 3.3 * len(reports)),
        layout="constrained",
        sharey="row",
        squeeze=False,
    )
    for row, (task, found) in zip(axes, reports.items(), strict=True):
        by_sigma = {
            kind: {s: r for s, r in of.items() if s in run.stddevs}
            for kind, of in found.items()
        }
        by_deviation = {
            kind: {s / spread(kind, size): r for s, r in of.items()}
            for kind, of in found.items()
        }
        for ax, curves, label in (
            (row[0], by_sigma, "sigma = softplus(rho)"),
            (row[1], by_deviation, "standard deviation of a weight"),
        ):
            bdl.plots.gradient_variance(curves, label=label, ax=ax)
            ax.set_xscale("log")
            ax.set_title(task, loc="left", weight="bold")
        row[1].set_ylabel("")
    one_legend(figure, axes.ravel())
    return figure


def one_legend(figure, axes):
    handles, names = axes[-1].get_legend_handles_labels()
    for ax in axes:
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    figure.legend(
        handles, names, loc="outside upper center", ncols=2, frameon=False
    )


# Figures 7 and 4: a convolutional network learns ten digits.


def net(run, kind, rho):
    common = {"padding": "same", "activation": "relu", "rho": rho}
    return bdl.Sequential(
        [
            keras.Input(run.data.input_shape),
            *(
                layer(kind, "Conv2D", filters, 3, strides=strides, **common)
                for filters, strides in run.convolutions
            ),
            keras.layers.Flatten(),
            layer(kind, "Dense", 10, rho=rho),
        ]
    )


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    shown = ("accuracy", "nll", "kl")

    def on_train_begin(self, logs=None):
        self.bar = keras.utils.Progbar(
            self.params["epochs"],
            stateful_metrics=self.shown,
            unit_name="epoch",
        )

    def on_epoch_end(self, epoch, logs=None):
        values = [(name, float(logs[name])) for name in self.shown]
        self.bar.update(epoch + 1, values)


def along_training(run):
    """Returns the logs of a training by method, and the reports."""
    x, y = run.data.train
    logs, reports = {}, {}
    for kind in KINDS:
        print(f"  {kind}", flush=True)
        keras.utils.set_random_seed(0)
        model = net(run, kind, rho=-6.0)
        model.compile(
            keras.optimizers.Adam(0.01), CROSS_ENTROPY, metrics=["accuracy"]
        )
        noise = bdl.callbacks.GradientVariance(
            x[:BATCH], y[:BATCH], every=run.every, samples=run.draws
        )
        logs[kind] = model.fit(
            x,
            y,
            batch_size=BATCH,
            epochs=run.epochs,
            verbose=0,
            callbacks=[noise, EpochBar()],
        ).history
        reports[kind] = noise.reports
    return logs, reports


def training_table(logs, reports):
    shown = ("accuracy", "nll", "kl")
    rows = []
    for kind, found in reports.items():
        for epoch, report in found.items():
            if epoch:
                row = [kind, epoch, *(logs[kind][n][epoch - 1] for n in shown)]
                rows.append(row + [report.means[n] for n in NUMBERS])
    return table(("method", "epoch", *shown, *NUMBERS), rows)


def draw_training(logs, reports):
    plt = bdl.plots.canvas.pyplot()
    figure, axes = plt.subplots(
        4, 1, figsize=(6.5, 9), layout="constrained", sharex=True
    )
    styles = bdl.plots.canvas.method_styles(KINDS)
    for ax, name, label in (
        (axes[0], "accuracy", "training accuracy"),
        (axes[1], "nll", "NLL of an example"),
        (axes[2], "kl", "KL / N"),
    ):
        bdl.plots.canvas.open_axes(ax)
        for kind in KINDS:
            values = logs[kind][name]
            epochs = range(1, len(values) + 1)
            ax.plot(epochs, values, color=styles[kind]["color"], label=kind)
        ax.set_ylabel(label)
    axes[1].set_yscale("log")
    bdl.plots.gradient_variance(reports, ax=axes[3])
    one_legend(figure, axes)
    return figure


def robustness(run):
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


def grid_table(run, found):
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
    return "\n".join([table(heads, rows), "", *lines])


def draw_grid(run, found):
    plt = bdl.plots.canvas.pyplot()
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


def plain(reports):
    """Turns every report in nested dictionaries into a dictionary."""
    if isinstance(reports, dict):
        return {str(name): plain(value) for name, value in reports.items()}
    return reports.to_dict()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--out", type=Path, default=Path("results/radial_robustness")
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args.smoke, args.seeds)

    print("[1/3] gradient noise against the scale of the weights", flush=True)
    by_scale, size = against_scale(run)
    print("[2/3] gradient noise along training", flush=True)
    logs, by_epoch = along_training(run)
    print("[3/3] initial rho by learning rate", flush=True)
    found = robustness(run)

    results = {
        "scale": plain(by_scale),
        "training": {"logs": logs, "reports": plain(by_epoch)},
        "robustness": {
            "rhos": run.rhos,
            "learning_rates": run.learning_rates,
            "accuracies": {kind: of.tolist() for kind, of in found.items()},
            "shares": shares(found),
        },
    }
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    text = "\n\n".join(
        (
            f"Gradient of the means, kernel of {size} weights, "
            f"{run.draws} draws\n\n{scale_table(by_scale, size)}",
            f"Along training\n\n{training_table(logs, by_epoch)}",
            f"Test accuracy of {SAMPLES} draws, means of {run.seeds} seeds\n\n"
            f"{grid_table(run, found)}",
        )
    )
    (args.out / "table.txt").write_text(text + "\n")
    for name, figure in (
        ("scale", draw_scale(run, by_scale, size)),
        ("training", draw_training(logs, by_epoch)),
        ("robustness", draw_grid(run, found)),
    ):
        figure.savefig(args.out / f"{name}.png", dpi=150)
    print(f"\n{text}\n\nTables and pictures: {args.out.resolve()}")


if __name__ == "__main__":
    main()
