"""A forward pass that returns gradients of each example."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_choice
from keras_bdl._data._batches import to_dense
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl._data._dataset_size import OBSERVATIONS
from keras_bdl._data._dataset_size import POSITIONS
from keras_bdl._data._dataset_size import count_positions
from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._layer_factors import kronecker_factors_of
from keras_bdl.curvature._losses import Losses
from keras_bdl.curvature._plan import Plan
from keras_bdl.curvature._plan import check_fallback
from keras_bdl.curvature._reductions import in_full_precision
from keras_bdl.curvature._weight_scope import current_values
from keras_bdl.distribute._replicas import first_tensor
from keras_bdl.distribute._replicas import mean_of_examples


class CapturedPass:
    """A forward pass whose methods return gradients and curvature.

    The cotangents are derivatives of the mean loss of the data. The share of
    example i in the gradient of this loss is

        c_i = omega_i g_i / (n R)                                         (1)

    on R replicas with n examples each, with the symbols of `step`.

    Args:
        model: A built Keras model.
        data: Inputs, targets and sample weights.
        values: Tensors in place of the weights. Defaults to `None`: no change.
        training: Passed to the model. Defaults to `True`.
        loss: Loss in place of the loss of the model. Defaults to `None`.
        loss_scale: Factor of the loss in the backward pass. Defaults to
            `None`.
        fallback: What to do with layers that have no rule, see `step`.
            Defaults to `"auto"`.
        pure: Whether assignments to variables are dropped. Defaults to
            `False`.
        observations: `"examples"` or `"positions"`, see `step`. Defaults to
            `"examples"`.
        counts_labels: Whether each label of an example is an observation, as
            for the posterior. Defaults to `False`.
        max_factor_size: Longest side of a kernel, as a matrix, that gets
            Kronecker factors. Defaults to `None`: no limit.

    Attributes:
        loss: The whole loss.
        y_pred: The outputs.
        penalties: Regularizers and other `model.losses`, not divided by the
            number of replicas.
    """

    def __init__(
        self,
        model: keras.Model,
        data: tuple,
        *,
        values: list | None = None,
        training: bool = True,
        loss: Loss | None = None,
        loss_scale: Any = None,
        fallback: bool | str = "auto",
        pure: bool = False,
        observations: str = EXAMPLES,
        counts_labels: bool = False,
        max_factor_size: int | None = None,
    ):
        # The gradient of an example is dense, even if its inputs are sparse.
        x, y, sample_weight = data
        x = to_dense(x)
        data = x, y, sample_weight
        self._plan = Plan(
            model, fallback=fallback, max_factor_size=max_factor_size
        )
        losses = Losses(model, loss)
        if values is None:
            values = current_values(self._plan.variables)
        # The tape records each access to a weight, so that `Capture` can detect
        # accesses outside of layers.
        self._tape = tf.GradientTape(persistent=True)
        self._examples = ops.shape(first_tensor(x))[0]
        with self._tape:
            self._capture = Capture(
                self._plan,
                values,
                self._tape,
                examples=self._examples,
                pure=pure,
            )
            with self._capture.recording():
                with self._capture.forward():
                    self.y_pred = _keras.call_with_training(model, x, training)
                self.loss = losses.total(data, self.y_pred, training=training)
                of_outputs = losses.of_outputs()
                self.penalties = [ops.sum(one) for one in model.losses]
            parts = [self.loss]
            if of_outputs is not None:
                parts.append(self.loss - of_outputs)
            if loss_scale is not None:
                parts = [p * ops.cast(loss_scale, "float32") for p in parts]
            # One tensor, unless the loss has terms that are not of the data.
            self._total, self._data = parts[0], parts[-1]
        self._unscale = None if loss_scale is None else 1.0 / loss_scale
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._all_examples = ops.cast(self._examples * replicas, "float32")
        self._all_observations = self._all_examples
        if (
            check_choice("observations", observations, OBSERVATIONS)
            == POSITIONS
        ):
            counted = losses.counted(data[1])
            positions = count_positions(self.y_pred, counted)
            self._all_observations = ops.cast(positions * replicas, "float32")
        if counts_labels and (labels := losses.labels(self.y_pred)) != 1:
            self._all_observations *= labels
        self._omega = _one_weight_each(sample_weight)

    def mean_omega(self) -> tf.Tensor | None:
        """Returns the mean weight of the examples of all replicas.

        The result is `None` if all weights are 1. Replicas communicate here, so
        call this method outside of `tf.cond`.
        """
        return None if self._omega is None else mean_of_examples(self._omega)

    def gradients(self) -> list:
        """Returns the gradients of the whole loss, by autodiff."""
        return self._unscaled_all(
            self._tape.gradient(self._total, self._values())
        )

    def gradients_and_squares(self) -> tuple[list, list]:
        """Returns gradients and mean squared per-example gradients."""
        copies = self._capture.read_in_loss
        cotangents, of_copies = self._tape.gradient(
            self._data, [self._capture.outputs, list(copies.values())]
        )
        moments = {}
        for layer, rule, calls in self._calls_by_layer(cotangents):
            moments.update(self._moments(layer, rule, calls))
        variables = self._plan.variables
        squares = [moments[id(v)][1] for v in variables]
        if self._total is not self._data:
            return self.gradients(), squares
        gradients = {id(v): moments[id(v)][0] for v in variables}
        for key, g in zip(copies, of_copies, strict=True):
            if g is not None:
                gradients[key] += self._unscaled(g)
        return list(gradients.values()), squares

    def gradients_and_cotangents(self) -> tuple[list, list]:
        """Returns the gradients of the weights, and those of outputs."""
        outputs = self._capture.outputs
        if self._total is not self._data:
            return self.gradients(), self._tape.gradient(self._data, outputs)
        gradients, cotangents = self._tape.gradient(
            self._data, [self._values(), outputs]
        )
        return self._unscaled_all(gradients), cotangents

    def squares_and_factors(
        self, cotangents: list, mean_omega: tf.Tensor | None
    ) -> tuple[list, list]:
        """Returns mean squares and Kronecker factors.

        The first list has an entry for each variable. A mean square is `None`
        if the second list has factors for the variable.

        Args:
            cotangents: The second result of `gradients_and_cotangents`.
            mean_omega: The result of the method `mean_omega`.
        """
        factors, squares = [], {}
        for layer, rule, calls in self._calls_by_layer(cotangents):
            found = [
                self._factors(matrix, calls, mean_omega)
                for matrix in self._plan.matrices(layer, rule)
            ]
            covered = {id(v) for f in found for v in f.variables}
            factors += found
            if any(id(v) not in covered for v in rule.weights(layer)):
                for key, moments in self._moments(layer, rule, calls).items():
                    squares[key] = None if key in covered else moments[1]
        return [squares.get(id(v)) for v in self._plan.variables], factors

    def per_example(self) -> list:
        """Returns n R c_i for all examples i, a tensor for each variable."""
        cotangents = self._tape.gradient(self._data, self._capture.outputs)
        found = {}
        for layer, rule, calls in self._calls_by_layer(cotangents):
            weights = rule.weights(layer)
            if calls:
                gradients = rule.summed_per_example(layer, calls)
            else:
                gradients = [
                    tf.zeros((self._examples, *v.shape)) for v in weights
                ]
            for variable, g in zip(weights, gradients, strict=True):
                found[id(variable)] = g * ops.cast(self._all_examples, g.dtype)
        return [found[id(v)] for v in self._plan.variables]

    def _calls_by_layer(self, cotangents):
        with self._capture.computing_rules():
            yield from self._capture.calls_by_layer(cotangents, self._unscale)

    def _moments(self, layer, rule, calls):
        """Returns sum_i c_i and v R sum_i c_i^2 / omega_i, by variable `id`.

        v is the number of observations on this replica, by default n.
        """
        weights = rule.weights(layer)
        if not calls:
            zeros = [tf.zeros(v.shape, v.dtype) for v in weights]
            return {id(v): (z, z) for v, z in zip(weights, zeros, strict=True)}
        # The term of example i in the mean square is c_i^2 v R / omega_i.
        if self._omega is None:
            lacking = tf.fill([self._examples], self._all_observations)
        else:
            total = ops.cast(self._all_observations, self._omega.dtype)
            lacking = tf.math.divide_no_nan(total, self._omega)
        dtype = calls[0][1].dtype
        moments = rule.moments(layer, calls, ops.cast(lacking, dtype))
        return {id(v): pair for v, pair in zip(weights, moments, strict=True)}

    def _factors(self, matrix, calls, mean_omega):
        return kronecker_factors_of(
            matrix,
            [matrix.rows(*call) for call in calls],
            all_examples=self._all_examples,
            all_observations=self._all_observations,
            omega=self._omega,
            mean_omega=mean_omega,
        )

    def _values(self):
        return [self._capture.value_of(v) for v in self._plan.variables]

    def _unscaled_all(self, gradients):
        """Returns one tensor for each of `_values`; `None` becomes zeros."""
        return [
            tf.zeros_like(value)
            if gradient is None
            else self._unscaled(tf.convert_to_tensor(gradient))
            for value, gradient in zip(self._values(), gradients, strict=True)
        ]

    def _unscaled(self, gradient):
        if self._unscale is None:
            return gradient
        return gradient * ops.cast(self._unscale, gradient.dtype)


def _one_weight_each(sample_weight):
    """Returns one weight per example, or `None` for other shapes."""
    weights = keras.tree.flatten(sample_weight)
    if sample_weight is None or len(weights) != 1:
        return None
    weight = tf.convert_to_tensor(weights[0])
    if any(size != 1 for size in weight.shape[1:]):
        return None
    return tf.reshape(in_full_precision(weight), [-1])


def pure_pass(
    model: keras.Model,
    data: tuple,
    *,
    training: bool,
    loss: Loss | None,
    fallback: bool | str,
    observations: str = EXAMPLES,
) -> CapturedPass:
    """Returns a `CapturedPass` that leaves the model unchanged.

    The pass uses the current weights of the model.

    Args:
        model: A built Keras model.
        data: Inputs, targets and sample weights, as arrays or tensors.
        training: Passed to the model.
        loss: Loss in place of the loss of the model, or `None`.
        fallback: What to do with layers that have no rule, see `step`.
        observations: `"examples"` or `"positions"`, see `step`. Defaults to
            `"examples"`.
    """
    data = keras.tree.map_structure(
        lambda t: None if t is None else tf.convert_to_tensor(t), data
    )
    return CapturedPass(
        model,
        data,
        training=training,
        loss=loss,
        fallback=check_fallback(fallback),
        pure=True,
        observations=observations,
    )
