"""The base class of the rules of layers, and the registry of rules."""

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl.curvature.reductions import sum_and_squares


class Rule:
    """How the weights of a type of layer enter its outputs.

    A layer is run as it is. Of each of its calls, what went in and z, what
    came out before the activation, are kept, and the loss is differentiated
    by z. The rule makes gradients by the weights from these, the contribution
    of example i being

        g_i = sum over calls, positions of dz_i dL/dz_i                   (1)

    which is linear in the cotangents dL/dz. Derive from this class and
    register the rule, see `register_rule`; `weights` and `per_example` are
    enough.

    Attributes:
        taps: `"pre-activation"`, where z is what the layer gives to its
            `activation`, if it has one; or `"output"`.
        calls_again: Whether `per_example` calls the layer, which then must
            do the same each time.

    Example:

    ```python
    @bdl.curvature.register_rule(Scale)
    class ScaleRule(bdl.curvature.Rule):
        def weights(self, layer):
            return [layer.scale]

        def per_example(self, layer, inputs, cotangents):
            return [keras.ops.sum(inputs * cotangents, axis=1)]
    ```
    """

    taps = "pre-activation"
    calls_again = False

    def weights(self, layer):
        """Returns the variables of the layer that this rule is about.

        Those that train must be among them all; the layer is refused
        otherwise.

        Args:
            layer: The layer, built.
        """
        raise NotImplementedError

    def run(self, layer, call, inputs, *args, **kwargs):
        """Calls the layer.

        Args:
            layer: The layer.
            call: Its own `call`.
            inputs: Its first argument.
            *args: Other arguments.
            **kwargs: Other arguments.

        Returns:
            What `per_example` will be given for `inputs`, any nest of
            tensors, and the output of the layer.
        """
        return inputs, call(inputs, *args, **kwargs)

    def per_example(self, layer, inputs, cotangents):
        """Returns (1) for one call.

        May read the values of variables, which are those that the call used.

        Args:
            layer: The layer.
            inputs: What `run` returned for it; the first axis are examples.
            cotangents: dL/dz, of the shape of z and at least in float32.

        Returns:
            A tensor of shape `(examples, *weight.shape)` for each of
            `weights`.
        """
        raise NotImplementedError

    def moments(self, layer, calls, example_weights):
        """Returns the sums over the examples of g_i and of v_i g_i^2.

        To be overridden where they are had without the g_i.

        Args:
            layer: The layer.
            calls: Pairs of inputs and cotangents, one a call.
            example_weights: The v_i, a tensor `(examples,)`.

        Returns:
            Two tensors of the shape of the weight for each of `weights`.
        """
        gradients = self.summed_per_example(layer, calls)
        return [sum_and_squares(g, example_weights) for g in gradients]

    def summed_per_example(self, layer, calls):
        """Returns (1) for all calls.

        Args:
            layer: The layer.
            calls: Pairs of inputs and cotangents, one a call.
        """
        each = [self.per_example(layer, *call) for call in calls]
        return [sum(parts[1:], parts[0]) for parts in zip(*each, strict=True)]

    def matrix_shape(self, layer):
        """Returns `(in, out)` if the kernel is a matrix, `None` otherwise.

        Args:
            layer: The layer, built.
        """
        return None

    def rows(self, layer, inputs, cotangents):
        """Returns what the Kronecker factors of a layer are made of.

        Args:
            layer: The layer, one that has a `matrix_shape`.
            inputs: What `run` returned for it.
            cotangents: dL/dz.

        Returns:
            The inputs of the matrix, `(examples, positions, in)`, and the
            cotangents `(examples, positions, out)`.
        """
        raise NotImplementedError

    def bias_of_rows(self, layer):
        """Returns the variable that a one behind the inputs multiplies.

        Args:
            layer: The layer, one that has a `matrix_shape`.
        """
        return layer.bias


def summed_over_positions(cotangents, channel_axis=-1):
    """Returns the sum over all axes but those of examples and channels.

    Args:
        cotangents: A tensor.
        channel_axis: The axis of the channels. Defaults to the last.
    """
    rank = len(cotangents.shape)
    axes = [a for a in range(1, rank) if a != channel_axis % rank]
    return ops.sum(cotangents, axis=axes) if axes else cotangents


_RULES = {}


def register_rule(*layer_classes):
    """Registers a `Rule` for layers, as a decorator of its class.

    The rule serves these layers and those derived from them, as long as they
    inherit `call`. Of several rules, that of the nearest class counts, and
    of two for one class the later.

    Args:
        *layer_classes: Classes of layers.

    Returns:
        The decorator.
    """

    def register(rule_class):
        for layer_class in layer_classes:
            _RULES[layer_class] = rule_class()
        return rule_class

    return register


def rule_of(layer):
    """Returns the rule of a built layer, or `None`.

    Args:
        layer: A Keras layer.
    """
    cls = next((c for c in type(layer).__mro__ if c in _RULES), None)
    if cls is None or type(layer).call is not cls.call:
        return None
    if getattr(layer, "quantization_mode", None) is not None:
        return None
    rule = _RULES[cls]
    known = {id(v) for v in rule.weights(layer)}
    # Low-rank adapters and subclasses may train others.
    if any(id(v) not in known for v in own_variables(layer)):
        return None
    return rule


def own_variables(layer):
    """Returns the trainable variables of a layer, not of those inside.

    Args:
        layer: A Keras layer.
    """
    inner = {
        id(v)
        for part in _keras.inner_layers(layer)
        for v in part.trainable_variables
    }
    return [
        v
        for v in layer.trainable_variables
        if id(v) not in inner and isinstance(v, keras.Variable)
    ]
