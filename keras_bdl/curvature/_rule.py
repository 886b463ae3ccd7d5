"""Base class of the rules of layers, and the registry of rules."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl.curvature._matrix import Matrix
from keras_bdl.curvature._reductions import sum_and_squares
from keras_bdl.curvature._trained_variables import trained_variables


class Rule:
    """Base of the rules that compute per-example gradients of a layer type.

    To support a new type of layer, derive from this class, override `weights`
    and `per_example`, and register the rule with `register_rule`.

    The layer runs unchanged. A record of each call holds the inputs and z, the
    output before the activation (see `taps`). TensorFlow differentiates the
    loss L with respect to z. The rule turns the inputs and the cotangents dL/dz
    into gradients of the weights w. The gradient of example i is

        g_i = sum over calls, positions of dz_i/dw dL/dz_i                (1)

    which is linear in the cotangents.

    Attributes:
        taps: `"pre-activation"`: z is the input of the layer's `activation`, or
            the output of a layer without `activation`. `"output"`: z is the
            output.
        calls_again: If `True`, a layer that assigns a variable in its call
            raises an error, because `per_example` calls the layer again and
            needs the same outputs.

    Example:

    ```python
    class Scale(keras.layers.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight(input_shape[1:])

        def call(self, inputs):
            return inputs * self.scale

    @bdl.extend.register_rule(Scale)
    class ScaleRule(bdl.extend.Rule):
        taps = "output"

        def weights(self, layer):
            return [layer.scale]

        def per_example(self, layer, inputs, cotangents):
            return [inputs * cotangents]

    scaled = keras.Sequential([keras.Input((4,)), Scale()])
    bdl.curvature.second_moments(scaled, x, x, loss="mse")
    ```
    """

    taps = "pre-activation"
    calls_again = False

    def weights(self, layer: keras.Layer) -> list:
        """Returns the variables of the layer that this rule covers.

        The rule applies only if the result contains all trainable variables of
        the layer.

        Args:
            layer: The layer, built.
        """
        raise NotImplementedError

    def run(
        self, layer: keras.Layer, call: Callable, inputs: Any, *args, **kwargs
    ) -> tuple[Any, Any]:
        """Calls the layer.

        Args:
            layer: The layer.
            call: The `call` of the layer.
            inputs: The first argument.
            *args: Other arguments.
            **kwargs: Other arguments.

        Returns:
            A pair. The first entry, any nested tensors, becomes the argument
            `inputs` of `per_example`. The second entry is the output of the
            layer.
        """
        return inputs, call(inputs, *args, **kwargs)

    def per_example(
        self, layer: keras.Layer, inputs: Any, cotangents: Any
    ) -> list:
        """Returns the g_i of (1) of all examples, for one call.

        While this method runs, the variables of the layer have the values that
        the call used.

        Args:
            layer: The layer.
            inputs: The first result of `run`; the first axis is the examples.
            cotangents: dL/dz, of the shape of z, in float32 or higher.

        Returns:
            A tensor of shape `(examples, *weight.shape)` for each of
            `weights`.
        """
        raise NotImplementedError

    def moments(
        self, layer: keras.Layer, calls: list, example_weights: Any
    ) -> list:
        """Returns the sums over the examples of g_i and of v_i g_i^2.

        Override this method if the layer type allows both sums to be computed
        without the g_i.

        Args:
            layer: The layer.
            calls: Pairs of inputs and cotangents, one pair per call.
            example_weights: The v_i, a tensor `(examples,)`.

        Returns:
            For each of `weights`, a pair of tensors of the shape of the weight.
        """
        gradients = self.summed_per_example(layer, calls)
        return [sum_and_squares(g, example_weights) for g in gradients]

    def summed_per_example(self, layer: keras.Layer, calls: list) -> list:
        """Returns (1) summed over all calls.

        Args:
            layer: The layer.
            calls: Pairs of inputs and cotangents, one pair per call.
        """
        each = [self.per_example(layer, *call) for call in calls]
        return [sum(parts[1:], parts[0]) for parts in zip(*each, strict=True)]

    def of_examples(self, inputs: Any, choose: Callable) -> Any:
        """Returns the first result of `run` for some of the examples.

        Override this method if `run` returns tensors whose first axis is not
        the examples.

        Args:
            inputs: The first result of `run`.
            choose: Function from a tensor with all examples on the first axis
                to a tensor with some of them.
        """
        return keras.tree.map_structure(
            lambda t: choose(t) if ops.is_tensor(t) else t, inputs
        )

    def matrices(self, layer: keras.Layer) -> list[Matrix]:
        """Returns the matrices of the layer that have Kronecker factors.

        Args:
            layer: The layer, built.
        """
        return []


def summed_over_positions(cotangents: Any, channel_axis: int = -1) -> Any:
    """Returns the sum over all axes but examples and channels.

    Args:
        cotangents: A tensor.
        channel_axis: The axis of the channels. Defaults to `-1`.
    """
    rank = len(cotangents.shape)
    axes = [a for a in range(1, rank) if a != channel_axis % rank]
    return ops.sum(cotangents, axis=axes) if axes else cotangents


# By class of layers, and whether the layer has a low-rank adapter.
_RULES: dict[tuple[Any, bool], Rule] = {}


def register_rule(
    *layer_classes: type, lora: bool = False
) -> Callable[[type], type]:
    """Returns a class decorator that registers a `Rule` for layers.

    Use it for your own layers; see the example of `Rule`. The rule applies to
    the given classes and to subclasses that inherit `call`. If several of the
    registered classes are bases of a layer, the nearest base class decides. A
    second rule for the same class replaces the first.

    Args:
        *layer_classes: Classes of layers.
        lora: Whether the rule is for layers with `enable_lora`. Defaults to
            `False`: for layers without.
    """

    def register(rule_class):
        for layer_class in layer_classes:
            _RULES[layer_class, lora] = rule_class()
        return rule_class

    return register


def rule_of(layer: Any) -> Rule | None:
    """Returns the rule that covers a built layer, or `None`.

    Args:
        layer: A Keras layer.
    """
    layer_class: Any = type(layer)
    lora = bool(getattr(layer, "lora_enabled", False))
    classes = layer_class.__mro__
    cls = next((c for c in classes if (c, lora) in _RULES), None)
    if cls is None or layer_class.call is not cls.call:
        return None
    if getattr(layer, "quantization_mode", None) is not None:
        return None
    rule = _RULES[cls, lora]
    known = {id(v) for v in rule.weights(layer)}
    # Subclasses may train other variables.
    if any(id(v) not in known for v in own_variables(layer)):
        return None
    return rule


def own_variables(layer: keras.Layer) -> list:
    """Returns the trainable variables of a layer without its inner layers.

    Args:
        layer: A Keras layer.
    """
    inner = {
        id(v)
        for part in _keras.inner_layers(layer)
        for v in trained_variables(part)
    }
    return [
        v
        for v in trained_variables(layer)
        if id(v) not in inner and isinstance(v, keras.Variable)
    ]
