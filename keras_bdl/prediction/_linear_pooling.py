"""Maximum pooling whose derivative in a direction is cheap."""

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_bdl import _backend
from keras_bdl import _keras
from keras_bdl._replaced_in_thread import replaced

_POOLING = (
    keras.layers.MaxPooling1D,
    keras.layers.MaxPooling2D,
    keras.layers.MaxPooling3D,
)


@contextlib.contextmanager
def linear_pooling(model: keras.Model, *, xla: bool) -> Iterator[None]:
    """Computes maximum pooling as a sum or a lookup, inside a block.

    A mask has a 1 at the maximum of each window and 0 elsewhere, so the sum of
    mask times input is the maximum. Only this thread is affected.

    The derivative of the sum is the sum of mask times derivative. All samples
    share the mask. TensorFlow's own derivative looks for the maximum again for
    each sample. In a graph, it is also wrong for some layers with
    `padding="same"` behind a ReLU (TensorFlow 2.21).

    Two-dimensional windows that overlap or reach beyond the border look up the
    positions of the maxima, but not under XLA, which lacks this operation.
    All other layers stay as they are.
    """
    with contextlib.ExitStack() as stack:
        for layer in _keras.all_layers(model):
            function = None
            if isinstance(layer, _POOLING) and _windows_are_apart(layer):
                function = _summed
            elif isinstance(layer, keras.layers.MaxPooling2D) and not xla:
                last = layer.data_format == "channels_last"
                function = _looked_up if last else None
            if function is not None:
                pooled = functools.partial(function, layer)
                stack.enter_context(replaced(layer, "call", pooled))
        yield


def _windows_are_apart(layer: Any) -> bool:
    pairs = zip(layer.strides, layer.pool_size, strict=True)
    return layer.padding == "valid" and all(s >= size for s, size in pairs)


def _summed(layer: Any, call: Any, inputs: Any) -> Any:
    inputs = ops.convert_to_tensor(inputs)
    (mask,) = _backend.grad(call, [inputs])
    means = ops.average_pool(
        # Not a product: 0 times infinity is NaN.
        ops.where(ops.stop_gradient(mask) > 0, inputs, ops.zeros_like(inputs)),
        layer.pool_size,
        layer.strides,
        layer.padding,
        layer.data_format,
    )
    return means * math.prod(layer.pool_size)


def _looked_up(layer: Any, call: Any, inputs: Any) -> Any:
    del call
    inputs = ops.convert_to_tensor(inputs)
    return _backend.max_pool_by_places(
        inputs, layer.pool_size, layer.strides, layer.padding
    )
