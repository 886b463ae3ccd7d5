"""The training loss at many places near one network."""

import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_bdl import priors
from keras_bdl.arguments import check_number
from keras_bdl.arguments import check_verbose
from keras_bdl.data.examples import TrainingData
from keras_bdl.diagnostics.loss_surface.projected_covariance import (
    projected_covariance,
)
from keras_bdl.diagnostics.loss_surface.projected_covariance import unit_vectors
from keras_bdl.diagnostics.loss_surface.weight_vectors import as_arrays
from keras_bdl.diagnostics.loss_surface.weight_vectors import as_vector
from keras_bdl.diagnostics.training_loss import TrainingLoss
from keras_bdl.diagnostics.training_loss import left_as_it_was
from keras_bdl.posteriors.gaussian import Gaussian
from keras_bdl.posteriors.low_rank_gaussian import LowRankGaussian
from keras_bdl.posteriors.posterior import Posterior
from keras_bdl.prediction.batch_norm import assign_statistics
from keras_bdl.prediction.batch_norm import batch_norm_batches
from keras_bdl.prediction.batch_norm import batch_norm_layers
from keras_bdl.prediction.batch_norm import batch_norm_statistics
from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.stateless_call import values_of


class LossValue(TrainingLoss):
    """Adds up loss, penalties and wrong answers batch by batch."""

    def over(self, data):
        """Returns the means over the data: loss, penalty, error rate.

        The error rate is NaN unless there is one output, of a classifier.

        Args:
            data: `TrainingData`.
        """
        totals = tf.zeros(4, "float64")
        for batch in data:
            totals = self(batch, totals)
        loss, penalty, wrong, answers = totals.numpy()
        error = wrong / answers if answers else np.nan
        return loss / data.examples, penalty / data.examples, error

    def _step(self, batch, totals):
        found = self.forward(batch)
        wrong, answers = self._errors(found)
        terms = [
            found.loss * found.examples,
            found.penalty * found.examples,
            wrong,
            answers,
        ]
        return totals + tf.stack([tf.cast(t, "float64") for t in terms])

    def _errors(self, found):
        """Returns the numbers of wrong and of all answers."""
        none = tf.constant(0), tf.constant(0)
        losses = keras.tree.flatten(self._given or self.model.loss)
        if len(losses) != 1 or len(keras.tree.flatten(found.outputs)) != 1:
            return none
        (outputs,), (y,) = map(keras.tree.flatten, (found.outputs, found.y))
        told = Likelihood.of_loss(losses[0])
        if told is None or told.task == "regression":
            return none
        if told.task == "binary":
            answers = outputs > (0.0 if told.from_logits else 0.5)
            labels = tf.reshape(tf.cast(y, "float32"), tf.shape(outputs)) > 0.5
        else:
            answers = tf.argmax(outputs, -1)
            if y.shape.rank == outputs.shape.rank and y.shape[-1] != 1:
                y = tf.argmax(y, -1)
            labels = tf.reshape(tf.cast(y, "int64"), tf.shape(answers))
        wrong = tf.reduce_sum(tf.cast(answers != labels, "int32"))
        return wrong, tf.size(answers)


class LossSurface:
    """Evaluates a model at `center + sum_i t_i e_i`.

    The arguments are those of `loss_cross_section`.

    Attributes:
        units: The directions e_i, of length 1, as rows.
        covariance: Of the projections of the posterior on the directions, if
            `center` is a posterior that has one; otherwise `None`.
        examples: How many examples the data have, once evaluated.
    """

    def __init__(
        self,
        model,
        data,
        directions,
        center,
        loss,
        weight_decay,
        prior,
        batch_norm_data,
        batch_norm_fraction,
        batch_size,
        verbose,
    ):
        self._value = LossValue.of(model, loss, training=False)
        check_number("weight_decay", weight_decay, at_least=0.0)
        self._model = model
        self._data = TrainingData(data, batch_size)
        self._weight_decay = weight_decay
        self._prior = priors.get(prior)
        self._batches = _batch_norm(model, batch_norm_data, batch_norm_fraction)
        self._shapes = [tuple(v.shape) for v in model.trainable_variables]
        self._origin = _origin(model, center, self._shapes)
        self.units = unit_vectors(directions, self._shapes)
        self._verbose = check_verbose(verbose)
        self.covariance = None
        if type(center) in (Gaussian, LowRankGaussian):
            self.covariance = projected_covariance(center, self.units)

    @property
    def examples(self):
        """How many examples the data have."""
        return self._data.examples

    def at(self, coordinates) -> dict:
        """Returns arrays of `loss`, `penalty` and `error`, one entry a point.

        Args:
            coordinates: Array with a row for each point and a column for
                each direction.
        """
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

    def _evaluate(self, point):
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

    def _log_prior(self):
        """Returns that of the variables without a regularizer of their own."""
        return sum(
            float(tf.reduce_sum(self._prior.log_prob(tf.identity(v.value))))
            for v in self._model.trainable_variables
            if v.regularizer is None
        )


def distances_of(name: str, values) -> np.ndarray:
    """Returns a vector of finite numbers, at least one.

    Args:
        name: The argument.
        values: What came for it.
    """
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


def _origin(model, center, shapes):
    if center is None:
        center = [
            keras.ops.convert_to_numpy(v) for v in model.trainable_variables
        ]
    if isinstance(center, Posterior):
        center.check(model)
        center = center.mean()
    return as_vector("center", center, shapes)


def _batch_norm(model, data, fraction):
    if data is not None:
        return batch_norm_batches(
            data, fraction, batch_size=None, prefix="batch_norm_"
        )
    if batch_norm_layers(model):
        warnings.warn(
            "The BatchNorm statistics of the model belong to the weights it "
            "was trained with, and not to those around them. Give training "
            "inputs as `batch_norm_data`, or freeze the BatchNorm layers. "
            "Received: batch_norm_data=None",
            stacklevel=4,
        )
    return None
