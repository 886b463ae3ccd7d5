"""Rules of layers: how a layer type computes the gradients of each example."""

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras


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
    bdl.curvature.second_moments(scaled, (x, x), loss="mse")
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
        self,
        layer: keras.Layer,
        call: Callable,
        inputs: Any,
        *args: Any,
        **kwargs: Any,
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
        sums = ExampleSums(example_weights)
        return [sums.of(g) for g in self.summed_per_example(layer, calls)]

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

    def matrices(self, layer: keras.Layer) -> "list[WeightMatrix]":
        """Returns the matrices of the layer that have Kronecker factors.

        Args:
            layer: The layer, built.
        """
        return []


@dataclasses.dataclass
class WeightMatrix:
    """A kernel that multiplies vectors, its bias, and its Kronecker factors.

    The layer multiplies its inputs a by a matrix, at P positions of each
    example, such as the positions of a convolution. With z the product, l_i the
    loss of example i of n, and omega_i the weight of the example (1 without
    `sample_weight`),

        A = sum_i omega_i sum_p a_ip a_ip^T / sum_i omega_i               (1)
        S = 1/(n P) sum_i omega_i sum_p (dl_i/dz_ip) (dl_i/dz_ip)^T       (2)

    The Kronecker product A (x) S approximates the mean of g_i g_i^T over the
    examples. Here g_i is the gradient of l_i with respect to the matrix
    `(in, out)`, flattened row by row. If each position of an example is an
    observation, (2) has the L_i and the v of `curvature_step` in place of l_i
    and n. A counts all positions. A position that a mask leaves out adds
    nothing to S.

    Attributes:
        kernel: The kernel. Its axes are those of `in`, then those of `out`,
            such as (height, width, channels) and (filters).
        bias: The bias if it is the last row of the matrix, where a = 1;
            otherwise `None`.
        kernel_shape: `(in, out)`, without the row of the bias.
        rows: Function from the inputs and the cotangents of a call to a,
            `(examples, positions, in)`, and dl/dz, `(examples, positions,
            out)`.
        inputs: A, of shape `(in, in)`, where `in` includes the row of the bias;
            `None` if not computed.
        outputs: S, of shape `(out, out)`, or `None`.
    """

    kernel: keras.Variable
    bias: keras.Variable | None
    kernel_shape: tuple[int, int]
    rows: Callable[[Any, Any], tuple[Any, Any]]
    inputs: Any = None
    outputs: Any = None

    @property
    def shape(self) -> tuple[int, int]:
        """`(in, out)`, where `in` includes the row of the bias."""
        ins, outs = self.kernel_shape
        return ins + (self.bias is not None), outs

    @property
    def variables(self) -> list:
        """The kernel, and the bias if the matrix has a row for the bias."""
        return [v for v in (self.kernel, self.bias) if v is not None]

    def rows_of_calls(self, calls: list) -> tuple[Any, Any]:
        """Returns a, with 1 for the bias, and dl/dz of all calls."""
        a, dz = joined_positions([self.rows(*call) for call in calls])
        if self.bias is not None:
            a = ops.concatenate([a, ops.ones_like(a[..., :1])], axis=-1)
        return a, dz


class PinnedWeights(keras.StatelessScope):
    """Replaces the values of some variables, also inside another scope."""

    def __init__(self, values: Iterable[tuple[Any, Any]]):
        super().__init__(values, initialize_variables=False)

    def get_current_value(self, variable: Any) -> Any:
        """Returns the value that Keras uses for a variable."""
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:
            value = self.original_scope.get_current_value(variable)
        return value

    def add_update(self, update: tuple[Any, Any]) -> Any:
        """Passes an assignment to the outer scope if an outer scope exists."""
        outer = self.original_scope
        if outer is None:
            return super().add_update(update)
        self.__exit__(None, None, None)
        try:
            outer.add_update(update)
        finally:
            self.__enter__()


def gram(rows: Any) -> Any:
    """Returns the sum over examples and positions of r r^T."""
    rows = ops.reshape(rows, (-1, rows.shape[-1]))
    return tf.matmul(rows, rows, transpose_a=True)


def joined_positions(calls: list) -> list:
    """Returns x and dz of all calls, `(examples, positions, features)`."""
    return [
        parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=1)
        for parts in zip(*calls, strict=True)
    ]


class ExampleSums:
    """The sums over the examples of g_i and of v_i g_i^2.

    The sums are products with vectors, which are faster than sums over the
    first axis. A network has hundreds of sums, so all sums of a layer use the
    same constants.
    """

    def __init__(self, example_weights: Any):
        self.example_weights = example_weights  # v_i
        self._row = tf.expand_dims(example_weights, 0)
        self._ones = tf.ones_like(self._row)
        self._shapes: dict[tuple, Any] = {}

    def of(
        self, per_example: Any, shape: tuple | None = None
    ) -> tuple[Any, Any]:
        """Returns both sums of the g_i, by default in the shape of a g_i."""
        shape = tuple(per_example.shape[1:] if shape is None else shape)
        rows = tf.reshape(per_example, self._constant((-1, math.prod(shape))))
        sums = tf.matmul(self._ones, rows)
        squares = tf.matmul(self._row, tf.square(rows))
        constant = self._constant(shape)
        return tf.reshape(sums, constant), tf.reshape(squares, constant)

    def _constant(self, shape: tuple) -> Any:
        if shape not in self._shapes:
            self._shapes[shape] = tf.constant(shape, tf.int32)
        return self._shapes[shape]


def in_full_precision(tensor: Any) -> Any:
    """Returns a tensor in float32 or higher precision."""
    dtype = keras.backend.result_type(tensor.dtype, "float32")
    return ops.cast(tensor, dtype)


def summed_over_positions(cotangents: Any, channel_axis: int = -1) -> Any:
    """Returns the sum over all axes but examples and channels."""
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

    def register(rule_class: type) -> type:
        for layer_class in layer_classes:
            _RULES[layer_class, lora] = rule_class()
        return rule_class

    return register


def rule_of(layer: Any) -> Rule | None:
    """Returns the rule that covers a built layer, or `None`."""
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
    """Returns the trained variables of a layer without its inner layers."""
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


# In each thread, the ids of variables that count as trained.
_COUNTED = threading.local()


def is_trained(variable: Any) -> bool:
    """Returns whether a variable is trainable, or counts as trained here."""
    return variable.trainable or id(variable) in getattr(_COUNTED, "ids", ())


def trained_variables(layer: keras.layers.Layer) -> list:
    """Returns the variables of a layer, with inner ones, that are trained."""
    if layer.trainable:
        return [v for v in layer.variables if is_trained(v)]
    ids = getattr(_COUNTED, "ids", ())
    return [v for v in layer.variables if id(v) in ids]


@contextlib.contextmanager
def counted_as_trained(variables: Iterable) -> Iterator[None]:
    """Counts variables as trained inside a block, in this thread.

    A posterior may cover variables that were frozen after training. The flag
    `trainable` of a variable does not change: other threads may use it.
    """
    before: frozenset[int] = getattr(_COUNTED, "ids", frozenset())
    _COUNTED.ids = before | {id(v) for v in variables}
    try:
        yield
    finally:
        _COUNTED.ids = before
