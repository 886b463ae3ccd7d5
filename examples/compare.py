"""Trains every method on embedded data and compares their uncertainties.

    python examples/compare.py [--smoke] [--out results/compare]

A small convolutional network learns the digits 0 to 4 from 200 of
scikit-learn's images. With so few images its predictions are uncertain. Each
method then predicts new images of these digits, images of the digits 5 to 9,
and noise. A good method is accurate on the new images of these digits, is
uncertain where it is wrong, and is uncertain on the digits 5 to 9 and on noise.
The samplers train a small ResNet++, which has no BatchNorm. Variational layers
and the optimizers that learn a distribution train the network without BatchNorm
and dropout. Prints a table, and writes the table and the pictures to a folder.
"""

import argparse
import functools
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

import keras_bdl as bdl

TRAIN = 200
MEMBERS = 5
SAMPLES = 30


class Run:
    """The data, and the networks that the methods share."""

    def __init__(self, smoke):
        self.smoke = smoke
        self.convolutions = ((4, 2),) if smoke else ((16, 1), (32, 2))
        self.epochs = 8 if smoke else 100
        self.members = 2 if smoke else MEMBERS
        self.samples = 3 if smoke else SAMPLES
        self.data = bdl.datasets.load("digits", validation_size=200, seed=0)
        self.x, self.y = (array[:TRAIN] for array in self.data.train)
        most = 32 if smoke else None
        self.validation = tuple(a[:most] for a in self.data.validation)

    def build(self, regularized=True, activation="relu"):
        """A convolutional network, with or without BatchNorm and dropout."""
        inputs = keras.Input(self.data.input_shape)
        x = inputs
        for filters, strides in self.convolutions:
            x = keras.layers.Conv2D(
                filters, 3, strides, padding="same", use_bias=not regularized
            )(x)
            if regularized:
                x = keras.layers.BatchNormalization()(x)
            x = keras.layers.Activation(activation)(x)
            if regularized:
                x = keras.layers.Dropout(0.2)(x)
        x = keras.layers.Flatten()(x)
        x = keras.layers.Dense(32, activation)(x)
        if regularized:
            x = keras.layers.Dropout(0.2)(x)
        return bdl.Model(inputs, keras.layers.Dense(self.data.num_classes)(x))

    def fit(self, model, optimizer, callbacks=(), **compile):
        model.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            **compile,
        )
        model.fit(
            self.x,
            self.y,
            batch_size=32,
            epochs=self.epochs,
            verbose=0,
            callbacks=[*callbacks, EpochBar()],
        )
        return model

    def fit_regularized(self, seed, learning_rate, callbacks=()):
        keras.utils.set_random_seed(seed)
        optimizer = keras.optimizers.SGD(
            learning_rate, momentum=0.9, nesterov=True, weight_decay=3e-3
        )
        return self.fit(self.build(), optimizer, callbacks)

    @property
    def steps(self):
        return self.epochs * -(-TRAIN // 32)

    @functools.cache  # noqa: B019 (one run per process)
    def network(self, seed):
        """A network trained in the ordinary way."""
        print(f"  training network {seed + 1} of {self.members}")
        cosine = keras.optimizers.schedules.CosineDecay(0.1, self.steps)
        return self.fit_regularized(seed, cosine)

    @functools.cache  # noqa: B019 (one run per process)
    def averaged(self, seed):
        """A network trained for averaging, and the callbacks that averaged."""
        print(f"  training network {seed + 1} of {self.members} for averaging")
        start = self.epochs // 2
        schedule = bdl.schedules.SWASchedule(
            0.1, 0.05, swa_start_step=self.steps * start // self.epochs
        )
        callbacks = {
            "SWA": bdl.SWA(start),
            "SWAG-Diagonal": bdl.SWAG(start, rank=0, scale=1.0),
            "SWAG": bdl.SWAG(start, rank=20),
        }
        model = self.fit_regularized(seed, schedule, callbacks.values())
        return model, callbacks

    @functools.cache  # noqa: B019 (one run per process)
    def variational(self, kind, seed):
        """A network whose weights have distributions."""
        print(f"  training {kind} network {seed + 1}")
        keras.utils.set_random_seed(seed)
        model = bdl.convert(self.build(regularized=False), kind)
        cosine = keras.optimizers.schedules.CosineDecay(3e-3, self.steps)
        return self.fit(model, keras.optimizers.Adam(cosine))

    def natural(self, optimizer, learning_rate, **options):
        """A network with a Gaussian over its ordinary weights."""
        keras.utils.set_random_seed(0)
        cosine = keras.optimizers.schedules.CosineDecay(
            learning_rate, self.steps
        )
        # With so few images, the posterior at a temperature of 1 is too wide.
        optimizer = optimizer(
            cosine, prior_precision=10.0, temperature=0.1, **options
        )
        return self.fit(self.build(regularized=False), optimizer)

    def network_of_chain(self):
        """A ResNet++; two dense layers if only the code is tried."""
        shape, classes = self.data.input_shape, self.data.num_classes
        if self.smoke:
            return bdl.applications.MultiHeadMLP(shape, 1, classes, units=(8,))
        return bdl.applications.ResNetPlusPlus(8, shape, classes, filters=8)

    def chain(self, sampler):
        """A network for the samplers, and its samples."""
        keras.utils.set_random_seed(0)
        model = self.network_of_chain()
        # Trains for four times the epochs; the first quarter is burn-in.
        cycle = bdl.schedules.CyclicalCosine(0.03, self.steps // 4)
        model.compile(
            sampler(
                cycle,
                average_speed=0.01,
                max_speed=0.03,
                precondition_every=self.steps // 4,
                precondition_end_step=self.steps,
            ),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        samples = bdl.callbacks.SampleCollector(cycle, start_epoch=self.epochs)
        # Shuffles anew in every epoch: a repeated shuffle biases the samples.
        data = tf.data.Dataset.from_tensor_slices((self.x, self.y))
        model.fit(
            data.shuffle(TRAIN, seed=0).batch(32),
            epochs=4 * self.epochs,
            shuffle=False,  # the data are shuffled already
            verbose=0,
            callbacks=[samples, EpochBar()],
        )
        return model, samples.posterior

    def predict(self, model, x, posterior=None):
        return bdl.predict(
            model,
            x,
            posterior,
            samples=self.samples,
            batch_norm_data=None if posterior is None else self.x,
            verbose=0,
        )


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    def on_train_begin(self, logs=None):
        self.bar = keras.utils.Progbar(
            self.params["epochs"], stateful_metrics=["loss"], unit_name="epoch"
        )

    def on_epoch_end(self, epoch, logs=None):
        self.bar.update(epoch + 1, [("loss", float(logs["loss"]))])


# A method trains its networks and returns a function that predicts.


def deterministic(run):
    return functools.partial(bdl.predict, run.network(0), verbose=0)


def temperature_scaling(run):
    predict = deterministic(run)
    x, y = run.validation
    scaling = bdl.prediction.TemperatureScaling().fit(predict(x), y)
    return lambda x: scaling(predict(x))


def mc_dropout(run):
    dropout = bdl.posteriors.MCDropout()
    return lambda x: bdl.predict(
        run.network(0), x, dropout, samples=run.samples, verbose=0
    )


def deep_ensemble(run):
    members = [run.network(seed) for seed in range(run.members)]
    ensemble = bdl.posteriors.Ensemble.from_models(members)
    return lambda x: bdl.predict(members[0], x, ensemble, verbose=0)


def laplace(structure, run):
    posterior = bdl.fit_laplace(
        run.network(0),
        (run.x, run.y),
        structure=structure,
        subset="all",
        prior_precision="validation",
        validation_data=run.validation,
        verbose=0,
    )
    return lambda x: run.predict(run.network(0), x, posterior)


def averaging(name, run):
    model, callbacks = run.averaged(0)
    return lambda x: run.predict(model, x, callbacks[name].posterior)


def multi_swag(run):
    runs = [run.averaged(seed) for seed in range(run.members)]
    mixture = bdl.posteriors.Mixture([c["SWAG"].posterior for _, c in runs])
    return lambda x: run.predict(runs[0][0], x, mixture)


def variational(kind, run):
    model = run.variational(kind, 0)
    return lambda x: run.predict(model, x)


def of_objective(cls, run):
    keras.utils.set_random_seed(0)
    model = run.build(regularized=False, activation="softplus")
    cosine = keras.optimizers.schedules.CosineDecay(3e-3, run.steps)
    # Fixes the variance to that of SGD with this learning rate.
    objective = cls(
        "fixed", learning_rate_equivalent=0.03, gradient_batch_size=32
    )
    run.fit(model, keras.optimizers.Adam(cosine), objective=objective)
    return lambda x: run.predict(model, x)


def radial_ensemble(run):
    members = [run.variational("radial", seed) for seed in range(run.members)]
    mixture = bdl.posteriors.Mixture(
        [bdl.posteriors.Layerwise(model) for model in members]
    )
    return lambda x: run.predict(members[0], x, mixture)


def natural(optimizer, learning_rate, options, run):
    model = run.natural(optimizer, learning_rate, **options)
    return lambda x: run.predict(model, x)


def sampling(sampler, run):
    model, posterior = run.chain(sampler)
    return lambda x: bdl.predict(model, x, posterior, verbose=0)


# A short memory forgets the first batch soon.
FIRST_BATCH = {"beta_2": 0.99, "initial_curvature": "first_batch"}
METHODS = {
    "deterministic": deterministic,
    "temperature scaling": temperature_scaling,
    "MC dropout": mc_dropout,
    "deep ensemble": deep_ensemble,
    "Laplace": functools.partial(laplace, "diagonal"),
    "KFAC-Laplace": functools.partial(laplace, "kronecker"),
    "SWA": functools.partial(averaging, "SWA"),
    "SWAG-Diagonal": functools.partial(averaging, "SWAG-Diagonal"),
    "SWAG": functools.partial(averaging, "SWAG"),
    "multi-SWAG": multi_swag,
    "mean-field": functools.partial(variational, "mean_field"),
    "Radial": functools.partial(variational, "radial"),
    "Radial ensemble": radial_ensemble,
    "VOGN": functools.partial(natural, bdl.VOGN, 0.01, FIRST_BATCH),
    "IVON": functools.partial(natural, bdl.IVON, 1.0, {}),
    # At a rate of 0.01, one seed of four failed on validation images.
    "Noisy K-FAC": functools.partial(
        natural, bdl.NoisyKFAC, 0.003, FIRST_BATCH
    ),
    "Taylor VI": functools.partial(of_objective, bdl.objectives.TaylorVI),
    "sampled VI": functools.partial(of_objective, bdl.objectives.SampledVI),
    "ATMC": functools.partial(sampling, bdl.ATMC),
    "SGNHT": functools.partial(sampling, bdl.SGNHT),
}


def compare(run):
    """Returns the predictions of every method, for each set of inputs."""
    sets = {"test": run.data.test[0], **run.data.ood}
    predictions = {name: {} for name in sets}
    seconds = {}
    for number, (method, train) in enumerate(METHODS.items(), 1):
        print(f"[{number}/{len(METHODS)}] {method}", flush=True)
        start = time.perf_counter()
        predict = train(run)
        for name, x in sets.items():
            predictions[name][method] = predict(x)
        seconds[method] = time.perf_counter() - start
    return predictions, seconds


def table(reports, seconds):
    columns = ["accuracy", "NLL", "Brier", "ECE"]
    unknown = list(next(iter(reports.values())).ood)
    head = [*columns, *(f"OOD {u}" for u in unknown), "seconds"]
    lines = ["method".ljust(20) + "".join(h.rjust(22) for h in head)]
    for method, r in reports.items():
        numbers = [r.accuracy, r.nll, r.brier, r.ece]
        numbers += [r.ood[u]["entropy"]["auroc"] for u in unknown]
        cells = [f"{n:.4f}" for n in numbers] + [f"{seconds[method]:.1f}"]
        lines.append(method.ljust(20) + "".join(c.rjust(22) for c in cells))
    return "\n".join(lines)


def draw(folder, test, y, unknown):
    """Writes the pictures."""
    held_out = unknown["held_out_classes"]
    figures = {
        "comparison": bdl.plots.comparison(
            test, y, ood=held_out, title="Digits 0-4, asked about digits 5-9"
        ),
        "reliability": bdl.plots.reliability_diagram(test, y).figure,
        "referral": bdl.plots.referral_curve(test, y).figure,
    }
    for method in ("deterministic", "SWAG"):
        axes = bdl.plots.entropy_histograms(test[method], held_out[method])
        axes.set_title(f"{method}, digits 0-4 against 5-9")
        figures[f"entropy_{method}"] = axes.figure
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=150)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--out", type=Path, default=Path("results/compare"))
    args = parser.parse_args()

    run = Run(args.smoke)
    predictions, seconds = compare(run)
    test, y = predictions.pop("test"), run.data.test[1]
    reports = {
        method: bdl.evaluate(
            p, y, ood={name: ps[method] for name, ps in predictions.items()}
        )
        for method, p in test.items()
    }

    args.out.mkdir(parents=True, exist_ok=True)
    text = table(reports, seconds)
    (args.out / "table.txt").write_text(text + "\n")
    numbers = {method: report.to_dict() for method, report in reports.items()}
    (args.out / "reports.json").write_text(json.dumps(numbers, indent=1))
    draw(args.out, test, y, predictions)
    print(f"\n{text}\n")
    print(
        f"{len(y)} test images, one run: accuracies are known to about "
        f"{(0.01 * 0.99 / len(y)) ** 0.5:.1%}, and small differences between "
        "the methods mean nothing."
    )
    print(f"Table and pictures: {args.out.resolve()}")


if __name__ == "__main__":
    main()
