"""A forward pass that returns the loss and the gradients of each example."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_choice
from keras_bdl._backend import first_tensor
from keras_bdl._backend import num_replicas
from keras_bdl._data._batches import to_dense
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl._data._dataset_size import OBSERVATIONS
from keras_bdl._data._dataset_size import POSITIONS
from keras_bdl._data._dataset_size import count_positions
from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._capture import Plan
from keras_bdl.curvature._capture import current_values
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import gram
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.distribute._replicas import mean_of_examples
from keras_bdl.likelihoods._loss_as_likelihood import check_reductions
from keras_bdl.likelihoods._loss_as_likelihood import ignored_class
from keras_bdl.likelihoods._loss_as_likelihood import labels_as_observations
from keras_bdl.likelihoods._loss_as_likelihood import labels_of_value
from keras_bdl.likelihoods._loss_as_likelihood import losses_and_outputs
from keras_bdl.likelihoods._loss_as_likelihood import one_value_each
from keras_bdl.likelihoods._loss_as_likelihood import unguarded

_OWNER = "per-example gradients"


class CapturedPass:
    """A forward pass whose methods return gradients and curvature.

    The cotangents are derivatives of the mean loss of the data. The share of
    example i in the gradient of this loss is

        c_i = omega_i g_i / (n R)                                         (1)

    on R replicas with n examples each, with the symbols and the arguments of
    `curvature_step`. `pure` drops assignments to variables.

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
        replicas = num_replicas()
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

    def mean_omega(self) -> Any:
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
        self, cotangents: list, mean_omega: Any
    ) -> tuple[list, list]:
        """Returns mean squares and matrices with their Kronecker factors.

        The first list has an entry for each variable. A mean square is `None`
        if the second list has factors for the variable. `cotangents` are the
        second result of `gradients_and_cotangents`.
        """
        factors: list[WeightMatrix] = []
        squares: dict[int, Any] = {}
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

    def _calls_by_layer(self, cotangents: list) -> Iterator[tuple]:
        with self._capture.computing_rules():
            yield from self._capture.calls_by_layer(cotangents, self._unscale)

    def _moments(
        self, layer: keras.Layer, rule: Rule, calls: list
    ) -> dict[int, tuple]:
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

    def _factors(
        self, matrix: WeightMatrix, calls: list, mean_omega: Any
    ) -> WeightMatrix:
        """Returns this replica's share of (1) and (2) of `WeightMatrix`."""
        if not calls:  # the loss does not depend on the layer
            a, s = (tf.zeros((n, n), matrix.kernel.dtype) for n in matrix.shape)
            return dataclasses.replace(matrix, inputs=a, outputs=s)
        a, dz = matrix.rows_of_calls(calls)
        positions = ops.cast(ops.shape(dz)[1], dz.dtype)
        examples = ops.cast(self._all_examples, dz.dtype)
        observations = ops.cast(self._all_observations, dz.dtype)
        if self._omega is None:
            inputs = gram(a) / examples  # (1)
        else:
            root = ops.sqrt(ops.cast(self._omega, dz.dtype))[:, None, None]
            inputs = tf.math.divide_no_nan(
                gram(a * root), examples * ops.cast(mean_omega, dz.dtype)
            )  # (1)
            # The square of a cotangent contains omega_i^2; (2) needs omega_i.
            dz = tf.math.divide_no_nan(dz, root)
        outputs = gram(dz) * observations / positions  # (2)
        return dataclasses.replace(matrix, inputs=inputs, outputs=outputs)

    def _values(self) -> list:
        return [self._capture.value_of(v) for v in self._plan.variables]

    def _unscaled_all(self, gradients: list) -> list:
        """Returns one tensor for each of `_values`; `None` becomes zeros."""
        return [
            tf.zeros_like(value)
            if gradient is None
            else self._unscaled(tf.convert_to_tensor(gradient))
            for value, gradient in zip(self._values(), gradients, strict=True)
        ]

    def _unscaled(self, gradient: Any) -> Any:
        if self._unscale is None:
            return gradient
        return gradient * ops.cast(self._unscale, gradient.dtype)


def _one_weight_each(sample_weight: Any) -> Any:
    """Returns one weight per example, or `None` for other shapes."""
    weights = keras.tree.flatten(sample_weight)
    if sample_weight is None or len(weights) != 1:
        return None
    weight = tf.convert_to_tensor(weights[0])
    if any(size != 1 for size in weight.shape[1:]):
        return None
    return tf.reshape(in_full_precision(weight), [-1])


class Losses:
    """Splits the loss of a model into the data term and the penalties.

    `loss` may replace the loss of the model, in any form that `compile` takes.
    """

    def __init__(self, model: keras.Model, loss: Loss | None = None):
        self._model = model
        self._judge = model
        if loss is not None:
            # An empty model compiles the loss.
            self._judge = keras.Model()
            self._judge.compile(loss=loss)
        elif not model.compiled:
            raise ValueError(
                "Per-example gradients need a loss. Compile the model with a "
                "loss, or give `loss`. "
                f"Received: model={model.name!r}, which is not compiled"
            )
        check_reductions(_OWNER, self._judge.loss)

    def total(self, data: tuple, y_pred: Any, *, training: bool) -> Any:
        """Returns the whole loss, equal to `compute_loss` of the model."""
        x, y, sample_weight = data
        with one_value_each(_OWNER, _keras.compile_loss(self._judge)):
            loss = _keras.compute_loss(
                self._judge, x, y, y_pred, sample_weight, training=training
            )
        if self._judge is not self._model:
            loss = loss + self._share(self._model.losses)
        return loss

    def of_data(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        """Returns the mean loss of the data without penalties."""
        with one_value_each(_OWNER, _keras.compile_loss(self._judge)) as loss:
            return loss(y, y_pred, sample_weight)

    def of_observations(self, y: Any, y_pred: Any, weight: Any) -> Any:
        """Returns the mean negative log-likelihood of the examples.

        Keras averages some losses over the labels of an example; the
        likelihood of the example is the product.
        """
        # Builds the losses, and checks that each example has its own value.
        self.of_data(y, y_pred, None)
        compiled = _keras.compile_loss(self._judge)
        targets = keras.tree.pack_sequence_as(y_pred, self._flat(y, y_pred))
        total = 0.0
        for (loss, output), (_, target) in zip(
            losses_and_outputs(compiled, y_pred),
            losses_and_outputs(compiled, targets),
            strict=True,
        ):
            # Keras requires one axis for each axis of the loss.
            axes = [1] * (len(output.shape) - 2)
            mean = loss(target, output, ops.reshape(weight, [-1, *axes]))
            total += labels_of_value(unguarded(loss), output) * mean
        return total

    def _flat(self, y: Any, y_pred: Any) -> list:
        """Returns the targets in the order of the flattened outputs."""
        if isinstance(y, dict) and not isinstance(y_pred, dict):
            y = [y[name] for name in self._model.output_names]
        return keras.tree.flatten(y)

    def counted(self, y: Any) -> Any:
        """Returns whether the loss counts each label, or `None` if all."""
        losses = keras.tree.flatten(self._judge.loss)
        ignored = ignored_class(losses[0]) if len(losses) == 1 else None
        if ignored is None:
            return None
        return ops.not_equal(ops.cast(y, "int64"), ignored)

    def labels(self, y_pred: Any) -> int:
        """Returns how many labels one value of the loss averages.

        The result is 1 for several outputs, whose gradients hold this factor.
        """
        return labels_as_observations(_keras.compile_loss(self._judge), y_pred)

    def of_outputs(self) -> Any:
        """Returns the penalties in the loss that depend on outputs of layers.

        Call this method after `total`, in the same scope. The result is `None`
        for a model without such penalties.
        """
        # `model.losses` ends with the regularizers of weights.
        regularized = [
            v for v in self._model.trainable_variables if v.regularizer
        ]
        losses = self._model.losses
        added = losses[: len(losses) - len(regularized)]
        return self._share(added) if added else None

    @staticmethod
    def _share(losses: list) -> Any:
        """Returns the sum of the penalties divided by the number of replicas.

        Keras adds this number to the loss on each replica.
        """
        return sum(ops.sum(loss) for loss in losses) / num_replicas()
