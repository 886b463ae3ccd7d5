"""Trains and predicts, each thing once."""

import dataclasses
import functools
import hashlib
import json
import os
import re
import time
from pathlib import Path

import data as data_sets
import keras
import networks
import numpy as np
import settings as all_settings
import tensorflow as tf
from methods import METHODS
from recipe import Cell
from trainings import LOSS
from trainings import TRAININGS

import keras_bdl as bdl

SEED_OF_MEMBER = 1000


@dataclasses.dataclass(frozen=True)
class Session:
    """Where and how everything runs.

    Attributes:
        scale: The scale.
        folder: Where the runs are kept.
        strategy: A `tf.distribute.Strategy`.
        data_dir: Where TensorFlow Datasets keeps its files.
        steps_per_execution: As of `compile`.
    """

    scale: str
    folder: Path
    strategy: tf.distribute.Strategy
    data_dir: str | None = None
    steps_per_execution: int = 1

    @property
    def static_shapes(self):
        """Whether all batches must have one size."""
        return isinstance(self.strategy, tf.distribute.TPUStrategy)

    def trained(self, cell, training, seed, ood=()):
        """Returns a training of a cell, finished or not.

        Args:
            cell: The `Cell`.
            training: Name of the training.
            seed: The seed.
            ood: Names of the sets that are out of distribution.
        """
        settings = all_settings.of(cell, training, self.scale)
        return Trained(self, cell, training, seed, _as_pairs(settings), ood)

    def predicted(self, cell, seed, ood=()):
        """Returns what a cell predicts, for each set, and the trainings.

        Args:
            cell: The `Cell`.
            seed: The seed.
            ood: Names of the sets that are out of distribution.
        """
        method = method_of(cell)
        trained = [
            self.trained(
                cell, method.training, seed + SEED_OF_MEMBER * member, ood
            )
            for member in range(method.members)
        ]
        for one in trained:
            one.finish()
        return Predicted(cell, method, trained).load(), trained


def method_of(cell):
    """Returns the `Method` of a cell."""
    if cell.method not in METHODS:
        raise SystemExit(
            f"There is no method {cell.method!r}, only {', '.join(METHODS)}."
        )
    return METHODS[cell.method]


def _as_pairs(settings):
    def frozen(value):
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    return tuple(sorted((k, frozen(v)) for k, v in settings.items()))


@dataclasses.dataclass(frozen=True)
class Trained:
    """A training, in a folder of its own.

    Two cells that ask for the same training get the same folder: its name is
    a hash of all that matters. A training that was killed goes on from its
    checkpoint, and one that is finished is only read.

    Attributes:
        session: The `Session`.
        cell: The `Cell`, of which data and network count.
        training: Name of the training.
        seed: The seed.
        pairs: The settings, as sorted pairs.
        ood: Names of the sets that are out of distribution.
    """

    session: Session
    cell: Cell
    training: str
    seed: int
    pairs: tuple
    ood: tuple = ()

    # What changes the prediction alone is no part of a training.
    AFTER = ("samples", "scale", "batch_norm_update", "batch_norm_fraction")

    @functools.cached_property
    def settings(self):
        """The settings."""
        return dict(self.pairs)

    @functools.cached_property
    def folder(self):
        """Where it is kept."""
        scale = self.session.scale
        network = networks.used(self.cell, scale)
        known = {k: v for k, v in self.pairs if k not in self.AFTER}
        data = data_sets.used(self.cell.data, scale)
        known |= {"data": data, "dtype": keras.config.dtype_policy().name}
        replicas = self.session.strategy.num_replicas_in_sync
        if replicas > 1:  # each with noise of its own
            known["replicas"] = replicas
        name = digested(network, self.training, known)
        return self.session.folder / name / f"seed{self.seed}"

    @functools.cached_property
    def data(self):
        """The data."""
        return data_sets.load(
            self.cell.data,
            self.settings,
            self.session.scale,
            self.seed,
            self.ood,
            self.cell.test,
            data_dir=self.session.data_dir,
            drop_remainder=self.session.static_shapes,
        )

    loss = staticmethod(LOSS)

    def network(self):
        """Returns what is trained, as it is before, and not compiled."""
        keras.utils.set_random_seed(self.seed)
        training = TRAININGS[self.training]
        with self.session.strategy.scope():
            network = networks.make(
                self.cell,
                self.data,
                self.session.scale,
                self.settings,
                self.session.data_dir,
            )
            if training.convert is None:
                return network
            return training.convert(network, self.settings, self.data)

    @functools.cached_property
    def model(self):
        """What was trained, for predictions: not compiled."""
        model = self.network()
        with np.load(self.folder / "weights.npz") as weights:
            model.set_weights(
                [weights[f"arr_{i}"] for i in range(len(weights))]
            )
        return model

    @functools.cached_property
    def history(self):
        """Epoch by epoch what `fit` said."""
        return json.loads((self.folder / "history.json").read_text())

    def posterior(self, name):
        """Returns a posterior that the training has saved."""
        return bdl.posteriors.load(self.folder / f"{name}.bdl")

    def finish(self):
        """Trains, unless that was done."""
        done = self.folder / "history.json"
        if done.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "settings.json").write_text(
            json.dumps(self.settings, indent=1) + "\n"
        )
        print(f"    training {self.training}, seed {self.seed}", flush=True)
        training = TRAININGS[self.training]
        model = self.network()
        with self.session.strategy.scope():
            training.compile(model, self.settings, self.data)
        model.steps_per_execution = self.session.steps_per_execution
        callbacks = training.callbacks(model, self.settings, self.data)
        history = self._fit(model, callbacks.values())
        if not bdl.distribute.is_chief(self.session.strategy):
            return
        np.savez(self.folder / "weights.npz", *model.get_weights())
        posteriors = {
            name: callback.posterior
            for name, callback in callbacks.items()
            if hasattr(callback, "posterior")
        }
        if training.posterior:
            posteriors["posterior"] = training.posterior(model)
        for name, posterior in posteriors.items():
            posterior.save(str(self.folder / f"{name}.bdl"))
        if "gradient_variance" in callbacks:
            reports = callbacks["gradient_variance"].reports
            means = {epoch: r.means for epoch, r in reports.items()}
            write(self.folder / "gradient_variance.json", json.dumps(means))
        write(done, json.dumps(history))  # the last: all is done
        (self.folder / "latest.bdl").unlink(missing_ok=True)

    def _fit(self, model, callbacks):
        """Trains, or goes on to train; returns the logs by name."""
        epochs = self.settings["epochs"]
        if not epochs:  # a pretrained network as it is
            return {}
        history = model.fit(
            self.data.train,
            epochs=epochs,
            shuffle=False,  # by Keras
            verbose=0,
            validation_data=self.data.sets["test"],
            validation_freq=max(epochs // self.settings["validations"], 1),
            callbacks=[
                EpochClock(),
                self.data.epochs,
                *callbacks,
                EpochBar(),
                bdl.callbacks.Checkpoint(str(self.folder)),
            ],
        )
        return history.history


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What a method predicts, in a file beside its training.

    Attributes:
        cell: The `Cell`.
        method: The `Method`.
        trained: The trainings.
    """

    cell: Cell
    method: object
    trained: list

    def load(self):
        """Returns the predictions by set; makes them if there are none."""
        first = self.trained[0]
        after = {k: v for k, v in first.settings.items() if k in Trained.AFTER}
        name = digested(self.cell.method, after)
        return {
            what: self._of_set(x, first.folder / f"{name}_{what}.npz")
            for what, x in first.data.sets.items()
        }

    def _of_set(self, x, path):
        if not path.exists():
            prediction = self._predict(x)
            found = {
                "log_mean": prediction.log_mean,
                "expected_entropy": prediction.expected_entropy,
                "num_samples": prediction.num_samples,
            }
            labels = x[1] if isinstance(x, tuple) else prediction.y
            if labels is not None:
                found["y"] = labels
            with open(path.with_suffix(".part"), "wb") as file:
                np.savez_compressed(file, **found)
            path.with_suffix(".part").replace(path)
        with np.load(path) as found:
            return bdl.prediction.ClassificationPrediction(
                found["log_mean"],
                found["expected_entropy"],
                num_samples=int(found["num_samples"]),
                y=found["y"] if "y" in found else None,
            )

    @functools.cached_property
    def _posterior(self):
        if self.method.posterior is None:
            return None
        many = self.method.members > 1
        return self.method.posterior(self.trained if many else self.trained[0])

    @functools.cached_property
    def _scaling(self):
        """The temperature of the outputs, from validation data."""
        validation = self.trained[0].data.validation
        y = validation[1] if isinstance(validation, tuple) else None
        scaling = bdl.prediction.TemperatureScaling()
        scaling.fit(self._unscaled(validation), y)
        return scaling

    def _predict(self, x):
        prediction = self._unscaled(x)
        return self._scaling(prediction) if self.method.scaled else prediction

    def _unscaled(self, x):
        first = self.trained[0]
        settings = first.settings
        posterior = self._posterior
        statistics = None
        if posterior is not None and settings.get("batch_norm_update", True):
            statistics = first.data.statistics
        return bdl.predict(
            first.model,
            x[0] if isinstance(x, tuple) else x,
            posterior,
            samples=settings["samples"] if self.method.draws else None,
            seed=first.seed,
            batch_norm_data=_inputs(statistics),
            batch_norm_fraction=settings.get("batch_norm_fraction", 1.0),
            task="classification",
            from_logits=True,
            verbose=0,
        )


def digested(*words):
    """Returns a name for a folder, ending in a hash of the last word."""
    text = json.dumps(words[-1], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^\w.+*-]+", "-", "_".join((*words[:-1], digest)))


def _inputs(part):
    return part[0] if isinstance(part, tuple) else part


class EpochClock(keras.callbacks.Callback):
    """Writes the seconds of each epoch to the logs."""

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = time.perf_counter() - self.start


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    def on_train_begin(self, logs=None):
        self.bar = keras.utils.Progbar(
            self.params["epochs"], stateful_metrics=["loss"], unit_name="epoch"
        )

    def on_epoch_end(self, epoch, logs=None):
        self.bar.update(epoch + 1, [("loss", float(logs["loss"]))])


def write(path, text):
    """Writes a file in one piece."""
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)
