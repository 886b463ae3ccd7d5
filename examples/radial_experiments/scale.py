"""Noise of the gradient against the scale of the weights (figure 6).

The noise is that of many draws of one convolution at its initial means.
"""

import math

import keras
import numpy as np

import keras_bdl as bdl
from radial_experiments.layout import one_legend
from radial_experiments.layout import text_table
from radial_experiments.settings import CROSS_ENTROPY
from radial_experiments.settings import KINDS
from radial_experiments.settings import NUMBERS
from radial_experiments.settings import layer


def rho_of(stddev):
    return stddev + math.log(-math.expm1(-stddev))


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


def measure(run):
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
                width = size**-0.5 if kind == "Radial" else 1.0
                start = np.full(rho.shape, rho_of(stddev * width), "float32")
                rho.assign(start)
                reports[task][kind][stddev] = bdl.diagnostics.gradient_variance(
                    model, (x, y), samples=run.draws, verbose=0
                )
                bar.add(1)
    return reports, size


def table(reports, size):
    heads = ("task", "method", "sigma", "sd of weight")
    rows = []
    for task, of_task in reports.items():
        for kind, found in of_task.items():
            for stddev, report in found.items():
                of = report.means
                row = [task, kind, stddev, stddev / spread(kind, size)]
                rows.append(row + [of[n] for n in NUMBERS])
    return text_table((*heads, *NUMBERS), rows)


def spread(kind, size):
    """Returns the ratio of a weight's scale sigma to its standard deviation."""
    return size**0.5 if kind == "Radial" else 1.0


def draw(run, reports, size):
    import matplotlib.pyplot as plt

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
