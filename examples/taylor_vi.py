"""Compares deterministic variational inference with sampled VI and MAP.

    python examples/taylor_vi.py [--smoke] [--seeds 3] [--out results/taylor_vi]

A small residual network with BatchNorm and softplus learns the digits 0 to 7
from 400 of scikit-learn's images. `TaylorVI` and `SampledVI` fit a Gaussian
posterior: `TaylorVI` without samples in training, `SampledVI` with samples.
`MAP` fits the most probable weights alone. First, all weights share one fixed
variance; the tried variances cover five orders of magnitude. Then each tensor
or each weight has a learned variance, at two temperatures. Prints the tables.
Plots the log-likelihood of new images over the fixed variance. A second axis
shows the learning rate of SGD that corresponds to this variance.
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_bdl as bdl
from keras_bdl.extend import StoragePath
from keras_bdl.objectives import MAP
from keras_bdl.objectives import SampledVI
from keras_bdl.objectives import TaylorVI

TRAIN, BATCH = 400, 40
METHODS = {"TaylorVI": TaylorVI, "SampledVI": SampledVI}
PRIOR = bdl.priors.HeNormal()


class Run:
    """The data, and the length of each training."""

    def __init__(self, smoke):
        self.smoke = smoke
        self.epochs, self.draws = (1, 2) if smoke else (30, 10)
        self.variances = [1e-4] if smoke else list(10.0 ** np.arange(-6, 0))
        self.temperatures = [0.1] if smoke else [1.0, 0.1]
        self.data = bdl.datasets.load("digits", classes=range(8), seed=0)
        self.x, self.y = (array[:TRAIN] for array in self.data.train)

    def network(self):
        """Returns a residual network, or one convolution with `--smoke`."""
        shape, classes = self.data.input_shape, self.data.num_classes
        if not self.smoke:
            return bdl.applications.PreActResNet(
                8, shape, classes, filters=8, activation="softplus"
            )
        layers = keras.layers
        return bdl.Sequential(
            [
                keras.Input(shape),
                layers.Conv2D(4, 3, strides=2, use_bias=False),
                layers.BatchNormalization(),
                layers.Activation("softplus"),
                layers.Flatten(),
                layers.Dense(classes),
            ]
        )

    def reports(self, objective, seed):
        """Trains a network, and evaluates its posterior and its means."""
        keras.utils.set_random_seed(seed)
        model = self.network()
        steps = self.epochs * TRAIN // BATCH
        model.compile(
            keras.optimizers.Adam(
                keras.optimizers.schedules.CosineDecay(3e-3, steps)
            ),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            objective=objective,
        )
        model.fit(
            self.x, self.y, batch_size=BATCH, epochs=self.epochs, verbose=0
        )
        means = [variable.numpy() for variable in model.trainable_variables]
        of_means = self.report(model, bdl.posteriors.Gaussian(means))
        if isinstance(objective, MAP):
            return of_means, of_means
        return self.report(model, bdl.posterior_of(model)), of_means

    def report(self, model, posterior):
        def predict(x):
            return bdl.predict(
                model,
                x,
                posterior,
                samples=1 if posterior.is_point else self.draws,
                # After so short a training the moving statistics lag behind
                # the weights, also at the means.
                batch_norm_data=self.x,
                verbose=0,
            )

        return bdl.evaluate(
            predict(self.data.test[0]),
            self.data.test[1],
            ood=predict(self.data.ood["held_out_classes"]),
        )


def settings(run):
    """Yields, for each training, its key and a function.

    The function makes the objective of the training.
    """
    yield ("fixed", "MAP", 1.0, None), lambda: MAP(PRIOR)
    for variance in run.variances:
        for name, cls in METHODS.items():
            yield (
                ("fixed", name, 1.0, variance),
                lambda cls=cls, v=variance: cls("fixed", v**0.5, prior=PRIOR),
            )
    for tau in run.temperatures:
        if tau != 1.0:
            yield (
                ("learned", "MAP", tau, None),
                lambda tau=tau: MAP(PRIOR, temperature=tau),
            )
        for covariance in ("scalar", "diagonal"):
            for name, cls in METHODS.items():
                yield (
                    (covariance, name, tau, None),
                    lambda cls=cls, c=covariance, tau=tau: cls(
                        c, prior=PRIOR, temperature=tau
                    ),
                )


def train(run, seeds):
    """Returns lists of pairs by key: reports of posterior and of means."""
    everything = list(settings(run))
    found = {key: [] for key, _ in everything}
    for seed in range(seeds):
        for number, (key, make) in enumerate(everything, 1):
            start = time.perf_counter()
            found[key].append(run.reports(make(), seed))
            covariance, name, tau, variance = key
            what = f"{variance:.0e}" if variance else covariance
            print(
                f"[{seed * len(everything) + number}/"
                f"{seeds * len(everything)}] {name}, {what}, temperature "
                f"{tau}: {time.perf_counter() - start:.0f} s",
                flush=True,
            )
    return found


def mean_and_error(values):
    error = np.std(values, ddof=1) / len(values) ** 0.5 if values[1:] else 0.0
    return np.mean(values), error


def table(found, fixed):
    """Means over the seeds, with their standard errors."""
    heads = ("accuracy", "NLL", "NLL at the means", "ECE", "AUROC 8, 9")
    lines = ["".ljust(38) + "".join(h.rjust(20) for h in heads)]
    for (covariance, name, tau, variance), pairs in found.items():
        if (covariance == "fixed") != fixed:
            continue
        numbers = [
            (
                report.accuracy,
                report.nll,
                of_means.nll,
                report.ece,
                next(iter(report.ood.values()))["entropy"]["auroc"],
            )
            for report, of_means in pairs
        ]
        cells = []
        for values in zip(*numbers, strict=True):
            mean, error = mean_and_error(values)
            cells.append(f"{mean:.4f} ± {error:.4f}".rjust(20))
        label = name
        if variance:
            label += f", variance {variance:.0e}"
        elif name != "MAP":
            label += f", {covariance}"
        if not fixed:
            label += f", temperature {tau}"
        lines.append(label.ljust(38) + "".join(cells))
    return "\n".join(lines)


def draw(run, found):
    """Draws the log-likelihood of unseen images against the fixed variance."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, color in (("TaylorVI", "#0072B2"), ("SampledVI", "#D55E00")):
        for index, style in ((0, "-"), (1, ":")):
            curve = [
                mean_and_error(
                    [
                        -pair[index].nll
                        for pair in found["fixed", name, 1.0, variance]
                    ]
                )
                for variance in run.variances
            ]
            means, errors = np.transpose(curve)
            label = name if index == 0 else f"{name}, at the means"
            ax.errorbar(
                run.variances, means, errors, label=label, color=color,
                linestyle=style, marker="o", markersize=4, capsize=2,
            )  # fmt: skip
    mean, error = mean_and_error(
        [-report.nll for report, _ in found["fixed", "MAP", 1.0, None]]
    )
    ax.axhline(mean, color="#555555", label="MAP")
    ax.axhspan(mean - error, mean + error, color="#555555", alpha=0.15, lw=0)
    ax.set(
        xscale="log",
        xlabel="variance of the posterior, the same for all weights",
        ylabel="log-likelihood of unseen images",
        ylim=(max(-1.5, ax.get_ylim()[0]), None),
    )
    above = ax.secondary_xaxis(
        "top", functions=(lambda v: 2 * BATCH * v, lambda r: r / (2 * BATCH))
    )
    above.set_xlabel(f"learning rate of SGD with batches of {BATCH}")
    ax.spines[["right"]].set_visible(False)
    ax.grid(True, color="#E6E6E6", linewidth=0.8)
    ax.legend(frameon=False, loc="lower left")
    return figure


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--out", type=StoragePath, default="results/taylor_vi")
    args = parser.parse_args()

    run = Run(args.smoke)
    found = train(run, args.seeds)
    args.out.mkdir(parents=True, exist_ok=True)
    text = f"{table(found, True)}\n\n{table(found, False)}"
    (args.out / "table.txt").write_text(text + "\n")
    numbers = {
        ", ".join(map(str, key)): [report.to_dict() for report, _ in pairs]
        for key, pairs in found.items()
    }
    (args.out / "reports.json").write_text(json.dumps(numbers, indent=1))
    with (args.out / "variance.png").replaced() as file:
        draw(run, found).savefig(file, dpi=150)
    print(f"\nMeans over {args.seeds} seeds, with standard errors\n\n{text}\n")
    print(f"Table and picture: {args.out.absolute()}")


if __name__ == "__main__":
    main()
