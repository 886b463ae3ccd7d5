"""The training loss at many points around one network."""

from typing import Any
from typing import TypedDict

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_verbose
from keras_bdl._data._batches import TrainingData
from keras_bdl.diagnostics._posterior_covariance import projected_covariance
from keras_bdl.diagnostics._training_loss import TrainingLoss
from keras_bdl.diagnostics._training_loss import left_as_it_was
from keras_bdl.diagnostics._weight_vectors import as_arrays
from keras_bdl.diagnostics._weight_vectors import as_vector
from keras_bdl.diagnostics._weight_vectors import unit_vectors
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._batch_norm import assign_statistics
from keras_bdl.prediction._batch_norm import batch_norm_batches
from keras_bdl.prediction._batch_norm import batch_norm_statistics
from keras_bdl.prediction._batch_norm import warn_of_stale_statistics
from keras_bdl.prediction._outputs import Likelihood
from keras_bdl.prediction._stateless_call import values_of
from keras_bdl.priors._tfp_distribution import get_prior


class LossSurfaceOptions(TypedDict, total=False):
    """The arguments that `loss_cross_section` and `loss_plane` share.

    Args:
        center: A list of arrays, or a `Posterior`, whose mean is the center. If
            the posterior is a `Gaussian` or `LowRankGaussian`, the report has
            its standard deviations or covariance along the directions. Defaults
            to `None`: the weights of the model.
        loss: The negative log-likelihood, as `compile` takes it. Defaults to
            `None`, the loss that the model is compiled with.
        weight_decay: a, for all trainable variables. The term a/2 |w|^2 has the
            gradient that `keras.optimizers.SGD(weight_decay=a)` adds. Defaults
            to `0.0`.
        prior: p, the prior of the variables without a regularizer: one of
            `keras_bdl.priors`, or a distribution of TensorFlow Probability.
            Defaults to `None`, a flat prior.
        batch_norm_data: Training inputs on which BatchNorm statistics are
            estimated again at every point, as in `keras_bdl.predict`. Defaults
            to `None`: the statistics do not change.
        batch_norm_fraction: Share of `batch_norm_data` to use. Defaults to
            `1.0`.
        batch_size: Batch size for arrays. Defaults to `None`, 32.
        verbose: `0` for silence, `1` for a progress bar, `2` for one line.
            Defaults to `"auto"`, `1`.
    """

    center: Any
    loss: Loss | None
    weight_decay: float
    prior: PriorLike | None
    batch_norm_data: Data | None
    batch_norm_fraction: float
    batch_size: int | None
    verbose: int | str


class LossValue(TrainingLoss):
    """Computes mean loss, mean penalty and error rate, batch by batch."""

    def over(self, data: TrainingData) -> tuple[float, float, float]:
        """Returns the mean loss, penalty and error rate over the data.

        The error rate is NaN unless the model is a classifier with one
        output.
        """
        totals = ops.zeros(4, "float64")
        for batch in data:
            totals = self(batch, totals)
        loss, penalty, wrong, answers = totals.numpy()
        error = wrong / answers if answers else np.nan
        return loss / data.examples, penalty / data.examples, error

    def _step(self, batch: Any, totals: Any) -> Any:
        found = self.forward(batch)
        wrong, answers = self._errors(found)
        terms = [
            found.loss * found.examples,
            found.penalty * found.examples,
            wrong,
            answers,
        ]
        return totals + ops.stack([ops.cast(t, "float64") for t in terms])

    def _errors(self, found: Any) -> Any:
        """Returns the numbers of wrong predictions and of all predictions."""
        none = ops.zeros(()), ops.zeros(())
        losses = keras.tree.flatten(self._given or self.model.loss)
        if len(losses) != 1 or len(keras.tree.flatten(found.outputs)) != 1:
            return none
        (outputs,), (y,) = map(keras.tree.flatten, (found.outputs, found.y))
        likelihood = Likelihood.of_loss(losses[0])
        if likelihood is None or likelihood.task == "regression":
            return none
        if likelihood.task == "binary":
            answers = outputs > (0.0 if likelihood.from_logits else 0.5)
            y = ops.reshape(ops.cast(y, "float32"), ops.shape(outputs))
            labels = y > 0.5
        else:
            answers = ops.argmax(outputs, -1)
            if len(y.shape) == len(outputs.shape) and y.shape[-1] != 1:
                y = ops.argmax(y, -1)
            y = ops.cast(y, answers.dtype)
            labels = ops.reshape(y, ops.shape(answers))
        wrong = ops.sum(ops.cast(answers != labels, "int32"))
        return wrong, ops.size(answers)


class LossSurface:
    """The loss of a model at points `center + sum_i t_i e_i`."""

    def __init__(
        self,
        model: keras.Model,
        data: Data,
        directions: Any,
        *,
        center: Any = None,
        loss: Loss | None = None,
        weight_decay: float = 0.0,
        prior: PriorLike | None = None,
        batch_norm_data: Data | None = None,
        batch_norm_fraction: float = 1.0,
        batch_size: int | None = None,
        verbose: int | str = "auto",
    ) -> None:
        self._value = LossValue.of(model, loss, training=False)
        check_number("weight_decay", weight_decay, at_least=0.0)
        self._model = model
        self._data = TrainingData(data, batch_size)
        self._weight_decay = weight_decay
        self._prior = get_prior(prior)
        self._batches = _batch_norm(model, batch_norm_data, batch_norm_fraction)
        self._shapes = [tuple(v.shape) for v in model.trainable_variables]
        self._origin = _origin(model, center, self._shapes)
        self.units = unit_vectors(directions, self._shapes)
        self._verbose = check_verbose(verbose)
        self.covariance = None
        if type(center) in (Gaussian, LowRankGaussian):
            self.covariance = projected_covariance(center, self.units)

    @property
    def examples(self) -> int:
        """Number of examples, after the first evaluation."""
        return self._data.examples

    def at(self, coordinates: np.ndarray) -> dict[str, np.ndarray]:
        """Returns `loss`, `penalty` and `error`, one entry per point."""
        bar = keras.utils.Progbar(
            len(coordinates), verbose=self._verbose, unit_name="point"
        )
        found = []
        with left_as_it_was(self._model):
            for i, point in enumerate(coordinates, 1):
                found.append(self._evaluate(point))
                bar.update(i)
        names = ("loss", "penalty", "error")
        return dict(zip(names, np.array(found).T, strict=True))

    def _evaluate(self, point: Any) -> Any:
        weights = self._origin + point @ self.units
        variables = self._model.trainable_variables
        arrays = as_arrays(weights, self._shapes)
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        if self._batches is not None:
            statistics = batch_norm_statistics(
                self._model, self._batches, values_of(self._model)
            )
            assign_statistics(statistics)
        loss, penalty, error = self._value.over(self._data)
        penalty += self._weight_decay / 2 * np.sum(weights**2)
        if self._prior is not None:
            penalty -= self._log_prior() / self._data.examples
        return loss, penalty, error

    def _log_prior(self) -> Any:
        """Returns the log prior of the variables without a regularizer."""
        return sum(
            float(ops.sum(self._prior.log_prob(ops.convert_to_tensor(v))))
            for v in self._model.trainable_variables
            if v.regularizer is None
        )


def distances_of(name: str, values: ArrayLike) -> np.ndarray:
    """Returns a list of finite numbers as a vector, or raises an error."""
    try:
        array = np.asarray(values, "float64")
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array)):
        raise ValueError(
            f"`{name}` must be a list of finite numbers, at least one. "
            f"Received: {name}={values!r}"
        )
    return array


def _origin(model: keras.Model, given: Any, shapes: list) -> Any:
    if given is None:
        given = [
            keras.ops.convert_to_numpy(v) for v in model.trainable_variables
        ]
    if isinstance(given, Posterior):
        given.check(model)
        given = given.mean()
    return as_vector("center", given, shapes)


def _batch_norm(model: keras.Model, data: Any, fraction: Any) -> Any:
    if data is not None:
        return batch_norm_batches(
            model, data, fraction, batch_size=None, prefix="batch_norm_"
        )
    warn_of_stale_statistics(model, "The loss surface", stacklevel=4)
    return None
