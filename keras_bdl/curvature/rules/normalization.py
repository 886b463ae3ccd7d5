"""The rules for normalisation layers."""

import keras
from keras import ops

from keras_bdl.curvature.reductions import in_full_precision
from keras_bdl.curvature.rule import Rule
from keras_bdl.curvature.rule import register_rule
from keras_bdl.curvature.rule import summed_over_positions
from keras_bdl.curvature.weight_scope import PinnedWeights


@register_rule(
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
)
class NormalizationRule(Rule):
    """The rule for `LayerNormalization` and others of its kind.

    The layer computes gamma xhat + beta, so that it gives xhat with gamma = 1
    and beta = 0, and is called like that again. There is no division by
    gamma, which may be zero.
    """

    taps = "output"

    def weights(self, layer):
        """Returns the scale and the offset, those that there are."""
        found = [
            getattr(layer, name, None) for name in ("gamma", "beta", "scale")
        ]
        # For some, `scale` says whether there is one.
        return [v for v in found if isinstance(v, keras.Variable)]

    def run(self, layer, call, inputs, *args, **kwargs):
        """Calls the layer, and keeps how to do so again."""
        outputs = call(inputs, *args, **kwargs)
        return (inputs, call, args, kwargs), outputs

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
    """Returns the sum over all axes but that of examples and the given."""
    rank = len(tensor.shape)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    kept = {a % rank for a in axes}
    summed = [a for a in range(1, rank) if a not in kept]
    return ops.sum(tensor, axis=summed) if summed else tensor


@register_rule(keras.layers.BatchNormalization)
class BatchNormalizationRule(Rule):
    """The rule for `BatchNormalization`.

    In training, the outputs of an example depend on all examples through the
    statistics. The gradient of an example is taken to be that through its own
    outputs,

        dbeta_i = sum_p dz_ip,   dgamma_i = sum_p dz_ip xhat_ip           (1)

    with the cotangents dz of the loss of the whole batch.
    """

    taps = "output"

    def weights(self, layer):
        """Returns the scale and the offset, those that there are."""
        # Renormalisation computes something else.
        if getattr(layer, "renorm", False):
            return []
        return [v for v in (layer.gamma, layer.beta) if v is not None]

    def run(self, layer, call, inputs, training=None, mask=None):
        """Calls the layer, and keeps the statistics that it uses."""
        x = in_full_precision(inputs)
        if training and layer.trainable:
            # As the layer computes them; in a graph, that is done once.
            mean, variance = layer._moments(x, mask)
        else:
            mean = ops.cast(layer.moving_mean, x.dtype)
            variance = ops.cast(layer.moving_variance, x.dtype)
        outputs = call(inputs, training=training, mask=mask)
        inverse = ops.rsqrt(variance + layer.epsilon)
        return (inputs, mean, inverse), outputs

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
