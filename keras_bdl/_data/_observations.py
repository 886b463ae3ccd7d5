"""Whether the number N counts examples or their positions."""

import functools
import math
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras

EXAMPLES = "examples"
POSITIONS = "positions"
OBSERVATIONS = (EXAMPLES, POSITIONS)


def positions_of_example(model: keras.Model) -> int | None:
    """Returns the number of values that the loss has for each example.

    These are the positions of the output: the axes between the first and the
    last. The result is `None` if their number is unknown.

    Args:
        model: A Keras model with one output.
    """
    outputs = getattr(model, "outputs", None)
    if not outputs:  # a subclass has none
        return None
    _check_one_output(outputs)
    sizes = outputs[0].shape[1:-1]
    return None if None in sizes else math.prod(sizes)


def count_positions(y_pred: Any, counted: Any = None) -> Any:
    """Returns the number of positions over which Keras averages the loss.

    Masked positions do not count.

    Args:
        y_pred: The outputs of a model for a batch.
        counted: A boolean tensor, whether the loss counts each position.
            Defaults to `None`: all.
    """
    outputs = keras.tree.flatten(y_pred)
    _check_one_output(outputs)
    shape = ops.shape(outputs[0])[:-1]
    masks = [_keras.mask_of(outputs[0]), counted]
    masks = [ops.reshape(m, shape) for m in masks if m is not None]
    if not masks:
        return ops.prod(shape)
    return ops.sum(ops.cast(functools.reduce(ops.logical_and, masks), "int32"))


def is_masked(y_pred: Any) -> bool:
    """Returns whether layers have passed on a mask to an output.

    Args:
        y_pred: The outputs of a model for a batch.
    """
    outputs = keras.tree.flatten(y_pred)
    return any(_keras.mask_of(output) is not None for output in outputs)


def _check_one_output(outputs):
    if len(outputs) != 1:
        raise ValueError(
            '`observations="positions"` needs a model with one output. Use '
            f'`observations="examples"`. Received: {len(outputs)} outputs'
        )
