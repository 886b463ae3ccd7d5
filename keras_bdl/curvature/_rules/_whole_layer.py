"""Rule for any layer, at a high cost in memory."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.curvature._rule import PinnedWeights
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import own_variables
from keras_bdl.curvature._rule import trained_variables


class WholeLayerRule(Rule):
    """Rule that calls a layer again for each example and differentiates it.

    `fallback` uses this rule for layers without a rule. `tf.vectorized_map`
    computes the gradients of all examples, and memory holds them at once. The
    layer must return one tensor, and the output of an example must depend on
    the arguments of this example only. A layer that draws random numbers or
    keeps statistics raises an error. If another argument, such as a mask, has
    as many rows as the inputs, the rule splits this argument by example, too.

    `inner` says whether the rule covers the weights of inner layers, which need
    rules of their own otherwise. Without `any_rows`, only masks may have as
    many rows as the inputs.
    """

    taps = "output"
    calls_again = True

    def __init__(self, *, inner: bool, any_rows: bool):
        self.inner = inner
        self._any_rows = any_rows

    def weights(self, layer: Any) -> list:
        """Returns the trainable variables that the rule covers."""
        return trained_variables(layer) if self.inner else own_variables(layer)

    def run(
        self, layer: Any, call: Callable, inputs: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Calls the layer and keeps its arguments for a second call."""
        outputs = call(inputs, *args, **kwargs)
        if not tf.is_tensor(outputs):
            raise ValueError(
                "A layer without a rule of its own must return one tensor. "
                f"Freeze the layer. Received: layer={layer.name!r} with "
                f"{type(outputs).__name__}"
            )
        if not self._any_rows:
            _check_arguments(layer, call, inputs, args, kwargs)
        return (inputs, call, args, kwargs), outputs

    def of_examples(self, inputs: Any, choose: Callable) -> Any:
        """Returns the inputs and the other arguments of some examples."""
        inputs, call, args, kwargs = inputs
        others = keras.tree.flatten((args, kwargs))
        chosen = {i: choose(t) for i, t in _of_rows(inputs, others).items()}
        args, kwargs = keras.tree.pack_sequence_as(
            (args, kwargs),
            [chosen.get(i, other) for i, other in enumerate(others)],
        )
        return keras.tree.map_structure(choose, inputs), call, args, kwargs

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
        """Returns the gradients of each example."""
        inputs, call, args, kwargs = inputs
        variables = self.weights(layer)
        values = [tf.convert_to_tensor(v.value) for v in variables]

        others = keras.tree.flatten((args, kwargs))
        of_rows = _of_rows(inputs, others)

        def of_one_example(example: Any) -> list:
            x, dz, parts = keras.tree.map_structure(lambda t: t[None], example)
            given = [parts.get(i, other) for i, other in enumerate(others)]
            args_of_one, kwargs_of_one = keras.tree.pack_sequence_as(
                (args, kwargs), given
            )
            pinned = PinnedWeights(zip(variables, values, strict=True))
            with tf.GradientTape() as tape, pinned, _keras.autocast(layer):
                tape.watch(values)
                outputs = call(x, *args_of_one, **kwargs_of_one)
            return tape.gradient(
                outputs,
                values,
                output_gradients=tf.cast(dz, outputs.dtype),
                unconnected_gradients="zero",
            )

        gradients = tf.vectorized_map(
            of_one_example, (inputs, cotangents, of_rows)
        )
        return [
            tf.cast(g, cotangents.dtype) if g.dtype != cotangents.dtype else g
            for g in gradients
        ]


def _check_arguments(
    layer: keras.Layer, call: Callable, inputs: Any, args: tuple, kwargs: dict
) -> None:
    rows = keras.tree.flatten(inputs)[0].shape[0]
    given = inspect.signature(call).bind(inputs, *args, **kwargs).arguments
    for name, value in list(given.items())[1:]:
        tensors = [t for t in keras.tree.flatten(value) if tf.is_tensor(t)]
        if "mask" in name or rows in (None, 1):
            continue
        if any(t.shape[:1] == [rows] for t in tensors):
            raise ValueError(
                "A layer without a rule has an argument with as many rows as "
                "there are examples. If each example has a row, pass "
                "`fallback=True`; otherwise register a rule. Received: "
                f"layer={layer.name!r}, argument {name!r} with {rows} rows"
            )


def _of_rows(inputs: Any, others: list) -> dict[int, Any]:
    """Returns the other arguments that have a row for each example."""
    rows = keras.tree.flatten(inputs)[0].shape[0]
    return {
        i: other
        for i, other in enumerate(others)
        if tf.is_tensor(other) and other.shape[:1] == [rows]
    }
