"""Rule for `PReLU`, a ReLU with learned slopes."""

import keras
from keras import ops

from keras_bdl.curvature._reductions import in_full_precision
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import register_rule


@register_rule(keras.layers.PReLU)
class PReLURule(Rule):
    """Rule for `PReLU`, whose slopes multiply negative inputs."""

    taps = "output"

    def weights(self, layer):
        """Returns the slopes."""
        return [layer.alpha]

    def per_example(self, layer, inputs, cotangents):
        """Returns the gradients of each example."""
        by_slope = cotangents * ops.minimum(in_full_precision(inputs), 0.0)
        shared = [
            1 + i for i, size in enumerate(layer.alpha.shape) if size == 1
        ]
        if not shared:
            return [by_slope]
        return [ops.sum(by_slope, axis=shared, keepdims=True)]
