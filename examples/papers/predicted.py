"""The predictions of a method, in files beside its training."""

import dataclasses
import functools

import numpy as np
from files import arrays_in
from files import damage_is_said
from files import digested
from methods import Method
from recipe import Cell

import keras_bdl as bdl
from keras_bdl.distribute import wait_for_all
from keras_bdl.extend import StoragePath


@dataclasses.dataclass(frozen=True)
class Predicted:
    """The predictions of a method, in files beside its training.

    Attributes:
        cell: The `Cell`.
        method: The `Method`.
        trained: The trainings.
    """

    cell: Cell
    method: Method
    trained: list

    def load(self):
        """Returns the predictions by set, and makes those that are missing.

        The sets are the test set of the cell and the out-of-distribution sets.
        """
        first = self.trained[0]
        name = digested(
            self.cell.method, first.settings.as_json(of_predictions=True)
        )
        return {
            what: self._of_set(
                first.data.sets[what], first.folder / f"{name}_{what}.npz"
            )
            for what in (self.cell.test or "test", *first.ood)
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
            strategy = self.trained[0].session.strategy
            if bdl.distribute.is_chief(strategy):
                with StoragePath(path).replaced() as file:
                    np.savez_compressed(file, **found)
            wait_for_all(strategy)
        with damage_is_said(path), arrays_in(path) as found:
            return bdl.prediction.ClassificationPrediction(
                found["log_mean"],
                expected_entropy=found["expected_entropy"],
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
        """The scaling of the outputs, fitted to validation data."""
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
        return first.predict(
            x,
            self._posterior,
            samples=first.settings.samples if self.method.draws else None,
            linearized=self.method.linearized,
        )
