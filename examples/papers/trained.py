"""One training, in a folder of its own."""

import dataclasses
import functools
import json
import zipfile
from typing import Any

import data as data_sets
import keras
import networks
import numpy as np
from compiling import LOSS
from epochs import EpochBar
from epochs import EpochClock
from files import arrays_in
from files import damage_is_said
from files import digested
from files import read
from files import write
from recipe import Cell
from settings import Settings
from trainings import SAMPLES
from trainings import TRAININGS

import keras_bdl as bdl
from keras_bdl.distribute import wait_for_all
from keras_bdl.extend import StoragePath


@dataclasses.dataclass(frozen=True)
class Trained:
    """One training, in a folder of its own.

    Two cells that need the same training share one folder. Its name ends in a
    hash of data, network, settings and precision. A killed training continues
    from its checkpoint. A finished training is read, not repeated.

    Attributes:
        session: The `Session`.
        cell: The `Cell`, which names data and network.
        training: Name of the training.
        seed: The seed.
        settings: The `Settings`.
        ood: Names of the out-of-distribution sets.
    """

    session: Any
    cell: Cell
    training: str
    seed: int
    settings: Settings
    ood: tuple = ()

    @functools.cached_property
    def folder(self):
        """Folder of the training."""
        scale = self.session.scale
        network = networks.used(self.cell, scale)
        known = self.settings.as_json()
        data = data_sets.used(self.cell.data, scale)
        known |= {"data": data, "dtype": keras.config.dtype_policy().name}
        replicas = self.session.strategy.num_replicas_in_sync
        if replicas > 1:  # each replica has noise of its own
            known["replicas"] = replicas
        name = digested(network, self.training, known)
        return StoragePath(self.session.folder) / name / f"seed{self.seed}"

    @functools.cached_property
    def data(self):
        """The `Data`."""
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

    @property
    def statistics_batch_size(self):
        """Batch size for `data.statistics`; `None` if it is batched already."""
        if isinstance(self.data.statistics, tuple):
            return self.settings.batch_size
        return None

    loss = staticmethod(LOSS)

    def network(self):
        """Returns the network before its training, not compiled."""
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
        """The trained network, not compiled."""
        model = self.network()
        path = self.folder / "weights.npz"
        with damage_is_said(path, self.folder), arrays_in(path) as weights:
            model.set_weights(
                [weights[f"arr_{i}"] for i in range(len(weights))]
            )
        return model

    @functools.cached_property
    def history(self):
        """The logs of `fit` in each epoch, by name."""
        return read(self.folder / "history.json", self.folder)

    def posterior(self, name):
        """Returns a posterior that the training has saved.

        The samples of a chain stay on disk until they are used.

        Args:
            name: Name of the posterior.
        """
        path = self.folder / f"{name}.bdl"
        with damage_is_said(path, self.folder):
            return bdl.posteriors.load(path, stream=True)

    def predict(self, x, posterior, *, samples=None, linearized=None):
        """Returns a prediction of the trained network.

        Args:
            x: A set of `data.sets`, or `data.validation`.
            posterior: The posterior; `None` for the weights, or for the
                distributions of layers.
            samples: Number of posterior samples. Defaults to `None`: the
                default of `keras_bdl.predict`.
            linearized: Argument of `keras_bdl.predict`. Defaults to `None`,
                the default of the posterior.
        """
        statistics, fraction = None, 1.0
        if posterior is not None and self.settings.batch_norm_update:
            statistics = self.data.statistics
            fraction = self.settings.batch_norm_fraction
        return bdl.predict(
            self.model,
            _inputs(x),
            posterior,
            samples=samples,
            seed=self.seed,
            options=bdl.prediction.PredictOptions(
                linearized=linearized,
                batch_norm_fraction=fraction,
                task="classification",
                from_logits=True,
            ),
            batch_norm_data=_inputs(statistics),
            verbose=0,
        )

    def finish(self):
        """Trains the network, unless an earlier run has trained it."""
        if (self.folder / "history.json").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = json.dumps(self.settings.as_json(), indent=1)
        write(self.folder / "settings.json", settings + "\n")
        print(f"    training {self.training}, seed {self.seed}", flush=True)
        training = TRAININGS[self.training]
        model = self.network()
        with self.session.strategy.scope():
            training.compile(model, self.settings, self.data)
        model.steps_per_execution = self.session.steps_per_execution
        callbacks = training.callbacks(
            model, self.settings, self.data, self.folder
        )
        history = self._fit(model, callbacks.values())
        if bdl.distribute.is_chief(self.session.strategy):
            self._keep(training, model, callbacks, history)
        wait_for_all(self.session.strategy)

    def _keep(self, training, model, callbacks, history):
        """Writes the files that predictions need."""
        with StoragePath(self.folder / "weights.npz").replaced() as file:
            np.savez(file, *model.get_weights())
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
        # The last file: it marks a finished training.
        write(self.folder / "history.json", json.dumps(history))
        (self.folder / "latest.bdl").unlink(missing_ok=True)
        if (self.folder / SAMPLES).exists():  # `samples.bdl` has them all
            (self.folder / SAMPLES).remove_folder()

    @property
    def _validation(self):
        """The test data, with batches of one size where a TPU needs them."""
        test = self.data.sets["test"]
        if not self.session.static_shapes:
            return test
        return bdl.datasets.padded(test, self.settings.batch_size)

    def _fit(self, model, callbacks):
        """Trains or continues to train; returns the logs by name."""
        epochs = self.settings.epochs
        if not epochs:  # a pretrained network as it is
            return {}
        checkpoint = self.folder / "latest.bdl"
        if checkpoint.exists():
            with (
                damage_is_said(checkpoint),
                StoragePath(checkpoint).open_to_read() as file,
            ):
                zipfile.ZipFile(file).close()
        history = model.fit(
            self.data.train,
            epochs=epochs,
            shuffle=False,  # the data are shuffled already
            verbose=0,
            validation_data=self._validation,
            validation_freq=max(epochs // self.settings.validations, 1),
            callbacks=[
                EpochClock(),
                self.data.epochs,
                *callbacks,
                EpochBar(),
                bdl.callbacks.Checkpoint(str(self.folder)),
            ],
        )
        return history.history


def _inputs(part):
    return part[0] if isinstance(part, tuple) else part
