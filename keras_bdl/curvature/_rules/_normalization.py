"""Rules for layers that scale each entry: normalisations and `PReLU`."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bdl._backend import call_shared
from keras_bdl.curvature._rule import PinnedWeights
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rule import summed_over_positions


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

    def weights(self, layer: Any) -> list:
        """Returns the scale and the offset, if the layer has them."""
        found = [
            getattr(layer, name, None) for name in ("gamma", "beta", "scale")
        ]
        # In some layers `scale` is a boolean.
        return [v for v in found if isinstance(v, keras.Variable)]

    def run(
        self, layer: Any, call: Callable, inputs: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Calls the layer and keeps its arguments for a second call."""
        outputs = call(inputs, *args, **kwargs)
        return (inputs, call, args, kwargs), outputs

    def of_examples(self, inputs: Any, choose: Callable) -> Any:
        """Returns the inputs of some examples, with the same arguments."""
        inputs, *others = inputs
        return choose(inputs), *others

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
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


def _summed_over_positions(tensor: Any, axis: Any) -> Any:
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

    def weights(self, layer: Any) -> list:
        """Returns the scale and the offset, if the layer has them."""
        # Renormalisation has another equation, so no weights are covered.
        if getattr(layer, "renorm", False):
            return []
        return [v for v in (layer.gamma, layer.beta) if v is not None]

    def run(
        self,
        layer: Any,
        call: Callable,
        inputs: Any,
        training: Any = None,
        mask: Any = None,
    ) -> tuple[Any, Any]:
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

    def of_examples(self, inputs: Any, choose: Callable) -> Any:
        """Returns the inputs of some examples, with the same statistics."""
        x, mean, inverse = inputs
        return choose(x), mean, inverse

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
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

    def moments(self, layer: Any, calls: list, example_weights: Any) -> list:
        """Returns the moments; layers of the same shapes share a trace."""
        return call_shared(
            functools.partial(super().moments, layer),
            calls,
            example_weights,
            key=(self, layer.axis, layer.gamma is None, layer.beta is None),
            sizes=True,
        )


@register_rule(keras.layers.PReLU)
class PReLURule(Rule):
    """Rule for `PReLU`, whose slopes multiply negative inputs."""

    taps = "output"

    def weights(self, layer: Any) -> list:
        """Returns the slopes."""
        return [layer.alpha]

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
        """Returns the gradients of each example."""
        by_slope = cotangents * ops.minimum(in_full_precision(inputs), 0.0)
        shared = [
            1 + i for i, size in enumerate(layer.alpha.shape) if size == 1
        ]
        if not shared:
            return [by_slope]
        return [ops.sum(by_slope, axis=shared, keepdims=True)]
