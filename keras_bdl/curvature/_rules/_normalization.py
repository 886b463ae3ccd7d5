"""Rules for normalisation layers."""

import functools

import keras
from keras import ops

from keras_bdl._backend import call_shared
from keras_bdl.curvature._reductions import in_full_precision
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rule import summed_over_positions
from keras_bdl.curvature._weight_scope import PinnedWeights


@register_rule(
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
)
class NormalizationRule(Rule):
    """Rule for `Group`-, `Layer`- and `RMSNormalization`.

    The layer computes gamma xhat + beta, with xhat the normalised inputs. To
    get xhat, the rule calls the layer again with gamma = 1 and beta = 0. A
    division by gamma would fail if gamma is zero.
    """

    taps = "output"

    def weights(self, layer):
        """Returns the scale and the offset, if the layer has them."""
        found = [
            getattr(layer, name, None) for name in ("gamma", "beta", "scale")
        ]
        # In some layers `scale` is a boolean.
        return [v for v in found if isinstance(v, keras.Variable)]

    def run(self, layer, call, inputs, *args, **kwargs):
        """Calls the layer and keeps its arguments for a second call."""
        outputs = call(inputs, *args, **kwargs)
        return (inputs, call, args, kwargs), outputs

    def of_examples(self, inputs, choose):
        """Returns the inputs of some examples, with the same arguments."""
        inputs, *others = inputs
        return choose(inputs), *others

    def per_example(self, layer, inputs, cotangents):
        """Returns the gradients of each example."""
        inputs, call, args, kwargs = inputs
        offset = getattr(layer, "beta", None)
        pins = [
            (v, (ops.zeros if v is offset else ops.ones)(v.shape, v.dtype))
            for v in self.weights(layer)
        ]
        with PinnedWeights(pins):
            xhat = in_full_precision(call(inputs, *args, **kwargs))
        gradients = []
        for variable in self.weights(layer):
            by = cotangents if variable is offset else cotangents * xhat
            total = _summed_over_positions(by, layer.axis)
            gradients.append(ops.reshape(total, (-1, *variable.shape)))
        return gradients


def _summed_over_positions(tensor, axis):
    """Returns the sum over all axes except the examples and `axis`."""
    rank = len(tensor.shape)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    kept = {a % rank for a in axes}
    summed = [a for a in range(1, rank) if a not in kept]
    return ops.sum(tensor, axis=summed) if summed else tensor


@register_rule(keras.layers.BatchNormalization)
class BatchNormalizationRule(Rule):
    """Rule for `BatchNormalization`.

    In training, the outputs of an example depend on all examples through the
    statistics. The rule defines the gradient of an example as the part that
    goes through the outputs of the example,

        dbeta_i = sum_p dz_ip,   dgamma_i = sum_p dz_ip xhat_ip           (1)

    with the cotangents dz of the loss of the whole batch.
    """

    taps = "output"

    def weights(self, layer):
        """Returns the scale and the offset, if the layer has them."""
        # Renormalisation has another equation, so no weights are covered.
        if getattr(layer, "renorm", False):
            return []
        return [v for v in (layer.gamma, layer.beta) if v is not None]

    def run(self, layer, call, inputs, training=None, mask=None):
        """Calls the layer and keeps the statistics of the call."""
        x = in_full_precision(inputs)
        if training and layer.trainable:
            # The layer computes the same. A graph computes both only once.
            mean, variance = layer._moments(x, mask)
        else:
            mean = ops.cast(layer.moving_mean, x.dtype)
            variance = ops.cast(layer.moving_variance, x.dtype)
        outputs = call(inputs, training=training, mask=mask)
        inverse = ops.rsqrt(variance + layer.epsilon)
        return (inputs, mean, inverse), outputs

    def of_examples(self, inputs, choose):
        """Returns the inputs of some examples, with the same statistics."""
        x, mean, inverse = inputs
        return choose(x), mean, inverse

    def per_example(self, layer, inputs, cotangents):
        """Returns the gradients of each example."""
        x, mean, inverse = inputs
        gradients = []
        if layer.gamma is not None:
            shape = [1] * len(x.shape)
            shape[layer.axis] = -1
            centred = in_full_precision(x) - ops.reshape(mean, shape)
            by_gamma = summed_over_positions(cotangents * centred, layer.axis)
            gradients.append(by_gamma * inverse)  # (1)
        if layer.beta is not None:
            by_beta = summed_over_positions(cotangents, layer.axis)
            gradients.append(by_beta)  # (1)
        return gradients

    def moments(self, layer, calls, example_weights):
        """Returns the moments; layers of the same shapes share a trace."""
        return call_shared(
            functools.partial(super().moments, layer),
            calls,
            example_weights,
            key=(self, layer.axis, layer.gamma is None, layer.beta is None),
            sizes=True,
        )
