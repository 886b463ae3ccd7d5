"""A forward pass that knows the gradients of each example."""

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.curvature.capture import Capture
from keras_bdl.curvature.factors import kronecker_factors_of
from keras_bdl.curvature.losses import Losses
from keras_bdl.curvature.plan import Plan
from keras_bdl.curvature.reductions import in_full_precision
from keras_bdl.curvature.weight_scope import current_values
from keras_bdl.distribute.replicas import mean_of_examples


class CapturedPass:
    """One forward pass, and what can be had from it going backward.

    The cotangents are those of the mean loss of the data, of which example i
    has the share

        c_i = omega_i g_i / (n R)                                         (1)

    on R replicas with n examples each. See `step` for the symbols, and for
    the arguments.

    Args:
        model: A built Keras model.
        x: A batch of inputs.
        y: The targets.
        sample_weight: The weights of the examples.
        values: Tensors for the weights, or `None`.
        training: Passed to the model.
        loss: Instead of that of the model, or `None`.
        loss_scale: A number, or `None`.
        fallback: Whether any layer will do.
        pure: Whether no variable is assigned. Defaults to `False`.

    Attributes:
        loss: The whole loss.
        y_pred: The outputs.
        penalties: What is in the loss beside that of the data, for all
            replicas together.
    """

    def __init__(
        self,
        model,
        x,
        y,
        sample_weight,
        values,
        training,
        loss,
        loss_scale,
        fallback,
        pure=False,
    ):
        self._plan = Plan(model, fallback)
        losses = Losses(model, loss)
        if values is None:
            values = current_values(self._plan.variables)
        # All kinds of accesses are watched, to find those past the layers.
        self._tape = tf.GradientTape(persistent=True)
        with self._tape:
            self._capture = Capture(self._plan, values, self._tape, pure)
            with self._capture.recording():
                with self._capture.forward():
                    self.y_pred = call_model(model, x, training)
                self.loss = losses.total(
                    x, y, self.y_pred, sample_weight, training
                )
                of_outputs = losses.of_outputs()
                self.penalties = [ops.sum(one) for one in model.losses]
            self._total = self._data = self.loss
            if of_outputs is not None:
                self._data = self.loss - of_outputs
            if loss_scale is not None:
                self._total = self._total * ops.cast(loss_scale, "float32")
                self._data = self._data * ops.cast(loss_scale, "float32")
        self._unscale = None if loss_scale is None else 1.0 / loss_scale
        first = next(i for i in keras.tree.flatten(x) if i is not None)
        self._examples = ops.shape(first)[0]
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._all_examples = ops.cast(self._examples * replicas, "float32")
        self._omega = _one_weight_each(sample_weight)

    def mean_omega(self):
        """Returns the mean weight of the examples of all replicas.

        `None` for ones. Replicas meet here, which they cannot in a branch.
        """
        return None if self._omega is None else mean_of_examples(self._omega)

    def gradients(self):
        """Returns the gradients of the whole loss, by autodiff."""
        values = [self._capture.value_of(v) for v in self._plan.variables]
        gradients = self._tape.gradient(
            self._total, values, unconnected_gradients="zero"
        )
        return [self._unscaled(tf.convert_to_tensor(g)) for g in gradients]

    def gradients_and_squares(self):
        """Returns gradients and mean squares, both from the calls."""
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

    def factors_and_squares(self, mean_omega):
        """Returns mean squares, `None` for those of matrices, and factors.

        Args:
            mean_omega: What the method of this name returned.
        """
        cotangents = self._tape.gradient(self._data, self._capture.outputs)
        factors, squares = [], {}
        for layer, rule, calls in self._calls_by_layer(cotangents):
            found = self._factors(layer, rule, calls, mean_omega)
            covered = {id(v) for v in found.variables} if found else set()
            factors += [found] if found else []
            if any(id(v) not in covered for v in rule.weights(layer)):
                for key, moments in self._moments(layer, rule, calls).items():
                    squares[key] = None if key in covered else moments[1]
        variables = self._plan.variables
        return [squares.get(id(v)) for v in variables], factors

    def per_example(self):
        """Returns n c_i for all examples i, a tensor for each variable."""
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
            yield from self._capture.calls_by_layer(
                cotangents, self._examples, self._unscale
            )

    def _moments(self, layer, rule, calls):
        """Returns sum_i c_i and n R sum_i c_i^2 / omega_i, by `id`."""
        weights = rule.weights(layer)
        if not calls:
            zeros = [tf.zeros(v.shape, v.dtype) for v in weights]
            return {id(v): (z, z) for v, z in zip(weights, zeros, strict=True)}
        # n R / omega_i is what the squares of (1) lack.
        if self._omega is None:
            lacking = tf.fill([self._examples], self._all_examples)
        else:
            all_examples = ops.cast(self._all_examples, self._omega.dtype)
            lacking = tf.math.divide_no_nan(all_examples, self._omega)
        dtype = calls[0][1].dtype
        moments = rule.moments(layer, calls, ops.cast(lacking, dtype))
        return {id(v): pair for v, pair in zip(weights, moments, strict=True)}

    def _factors(self, layer, rule, calls, mean_omega):
        matrix = self._plan.matrix(layer, rule)
        if matrix is None:
            return None
        return kronecker_factors_of(
            matrix,
            [rule.rows(layer, *call) for call in calls],
            self._all_examples,
            self._omega,
            mean_omega,
        )

    def _unscaled(self, gradient):
        if self._unscale is None:
            return gradient
        return gradient * ops.cast(self._unscale, gradient.dtype)


def call_model(model, x, training):
    """Returns the outputs of a model, told whether this is training.

    Args:
        model: A Keras model.
        x: A batch of inputs.
        training: What to tell it, if it asks.
    """
    if _keras.call_takes_training(model):
        return model(x, training=training)
    return model(x)


def _one_weight_each(sample_weight):
    """Returns omega, if there is one number for each example."""
    weights = keras.tree.flatten(sample_weight)
    if sample_weight is None or len(weights) != 1:
        return None
    weight = tf.convert_to_tensor(weights[0])
    if any(size != 1 for size in weight.shape[1:]):
        return None
    return tf.reshape(in_full_precision(weight), [-1])


def pure_pass(model, x, y, sample_weight, training, loss, fallback):
    """Returns a pass at the weights of a model that changes nothing in it.

    Args:
        model: A built Keras model.
        x: A batch of inputs, arrays or tensors.
        y: The targets.
        sample_weight: The weights of the examples.
        training: Passed to the model.
        loss: Instead of that of the model, or `None`.
        fallback: Whether any layer will do.
    """
    x, y, sample_weight = keras.tree.map_structure(
        lambda t: None if t is None else tf.convert_to_tensor(t),
        (x, y, sample_weight),
    )
    return CapturedPass(
        model, x, y, sample_weight, None, training, loss, None, fallback, True
    )
