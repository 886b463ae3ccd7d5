"""Samples the posterior of a small ResNet++ on embedded data.

    python examples/sampling.py [--smoke] [--seeds 3] [--out results/sampling]

SGD and the samplers ATMC and SGNHT each train a ResNet++ of depth 8 on 200 of
scikit-learn's images of ten digits. The samplers keep the last network of every
cycle. Prints the temperatures of the chains, whether the chains agree, and
scores of one sample and of the average over all samples. Draws the calibration
of both, as figure 2 of the ATMC paper does.
"""

import argparse
import functools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

TRAIN, BATCH = 200, 50
STEPS = TRAIN // BATCH  # in each epoch
NUMBERS = ("accuracy", "nll", "brier", "ece")


class Run:
    """The data, and the length of each training."""

    def __init__(self, smoke):
        self.smoke = smoke
        self.epochs, self.burn_in, self.cycle = 800, 200, 50
        if smoke:
            self.epochs, self.burn_in, self.cycle = 12, 4, 2
        self.data = bdl.datasets.load("digits", classes=range(10), seed=0)
        self.train = tuple(array[:TRAIN] for array in self.data.train)

    def network(self):
        """Returns a ResNet++, or two dense layers with `--smoke`."""
        shape, classes = self.data.input_shape, self.data.num_classes
        if self.smoke:
            return bdl.applications.MultiHeadMLP(shape, 1, classes, units=(8,))
        return bdl.applications.ResNetPlusPlus(8, shape, classes, filters=8)

    def fit(self, optimizer, seed, callbacks=()):
        keras.utils.set_random_seed(seed)
        model = self.network()
        model.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        # A new order in every epoch: a repeated shuffle biases the samples.
        order = bdl.datasets.EpochCounter()
        batches = order.batches(self.train, BATCH, seed=seed)
        model.fit(
            batches,
            epochs=self.epochs,
            shuffle=False,  # the data are shuffled already
            verbose=0,
            callbacks=[order, *callbacks, EpochBar()],
        )
        return model

    def predict(self, model, posterior=None):
        return bdl.predict(model, self.data.test[0], posterior, verbose=0)


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    shown = ("posterior_samples", "posterior_nll", "kinetic_temperature")

    def on_train_begin(self, logs=None):
        self.bar = keras.utils.Progbar(
            self.params["epochs"],
            stateful_metrics=self.shown,
            unit_name="epoch",
        )

    def on_epoch_end(self, epoch, logs=None):
        values = [(name, logs[name]) for name in self.shown if name in logs]
        self.bar.update(epoch + 1, values)


def sgd(run, seed):
    rate = keras.optimizers.schedules.CosineDecay(0.05, run.epochs * STEPS)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)
    return {"SGD": run.predict(run.fit(optimizer, seed))}


def sampler(run, seed, name, make, chains):
    cycle = bdl.schedules.CyclicalCosine(0.03, cycle_steps=run.cycle * STEPS)
    # Speeds for a short training: those of the paper are 30 times smaller, for
    # 100 times as many steps. Masses stay fixed after the burn-in.
    optimizer = make(
        cycle,
        average_speed=0.01,
        max_speed=0.03,
        precondition_every=STEPS * run.cycle // 2,
        precondition_end_step=STEPS * run.burn_in,
        seed=seed,
    )
    samples = bdl.callbacks.SampleCollector(cycle, start_epoch=run.burn_in)
    validation = bdl.callbacks.EnsembleValidation(samples, run.data.test)
    diagnostics = bdl.callbacks.ChainDiagnostics(verbose=0)
    model = run.fit(optimizer, seed, [samples, validation, diagnostics])
    chains.append((model, samples, diagnostics))
    return {
        f"{name}, one sample": run.predict(model),
        f"{name}, posterior predictive": run.predict(model, samples.posterior),
    }


METHODS = {
    "ATMC": bdl.ATMC,
    "SGNHT": bdl.SGNHT,
    "ATMC at T = 0.1": functools.partial(bdl.ATMC, temperature=0.1),
}


def sample(run, seeds):
    """Returns reports by method, chains by sampler, and last predictions."""
    reports, chains, predictions = {}, {name: [] for name in METHODS}, {}
    for seed in range(seeds):
        print(f"[{seed + 1}/{seeds}] SGD", flush=True)
        predictions = sgd(run, seed)
        for name, make in METHODS.items():
            print(f"[{seed + 1}/{seeds}] {name}", flush=True)
            predictions |= sampler(run, seed, name, make, chains[name])
        for name, prediction in predictions.items():
            report = bdl.evaluate(prediction, run.data.test[1])
            reports.setdefault(name, []).append(report)
    return reports, chains, predictions


def table(reports):
    """Means over the seeds, with their standard errors."""
    lines = ["".ljust(38) + "".join(n.rjust(18) for n in NUMBERS)]
    for name, of_seeds in reports.items():
        cells = []
        for number in NUMBERS:
            values = [report[number] for report in of_seeds]
            cell = f"{np.mean(values):.4f}"
            if len(values) > 1:
                error = np.std(values, ddof=1) / len(values) ** 0.5
                cell += f" ± {error:.4f}"
            cells.append(cell.rjust(18))
        lines.append(name.ljust(38) + "".join(cells))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--out", type=StoragePath, default="results/sampling")
    args = parser.parse_args()

    run = Run(args.smoke)
    reports, chains, predictions = sample(run, args.seeds)
    args.out.mkdir(parents=True, exist_ok=True)
    text = table(reports)
    (args.out / "table.txt").write_text(text + "\n")

    model, _, diagnostics = chains["ATMC"][0]
    print("\nATMC, temperatures at the end of the first chain\n")
    print(diagnostics.table())
    if args.seeds > 1:
        collectors = [samples for _, samples, _ in chains["ATMC"]]
        agreement = bdl.diagnostics.prediction_chains(
            collectors, model, run.data.test[0], verbose=0
        )
        print(f"\nATMC, {args.seeds} chains\n")
        print(bdl.diagnostics.convergence(agreement))
        first = (0, int(run.data.test[1][0]))
        axes = bdl.plots.trace(
            agreement,
            entry=first,
            label="probability of the first test image's class",
        )
        with (args.out / "trace.png").replaced() as file:
            axes.figure.savefig(file, dpi=150)
    shown = (
        "SGD",
        "ATMC, one sample",
        "ATMC, posterior predictive",
        "ATMC at T = 0.1, posterior predictive",
    )
    axes = bdl.plots.reliability_diagram(
        {name: predictions[name] for name in shown},
        run.data.test[1],
        num_bins=8,
    )
    with (args.out / "calibration.png").replaced() as file:
        axes.figure.savefig(file, dpi=150)
    print(f"\nMeans over {args.seeds} seeds, with standard errors\n\n{text}\n")
    print(f"Table and pictures: {args.out.absolute()}")


if __name__ == "__main__":
    main()
