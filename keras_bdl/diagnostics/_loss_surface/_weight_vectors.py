"""Weights of a whole network as one vector."""

import math
from typing import Any

import numpy as np


def as_vector(name: str, arrays: Any, shapes: list) -> np.ndarray:
    """Returns one float64 vector with the entries of all arrays.

    Args:
        name: Name of the argument in errors.
        arrays: An array for each shape, or a vector of all their entries.
        shapes: Shapes of the trainable variables.
    """
    size = sum(math.prod(shape) for shape in shapes)
    listed = isinstance(arrays, (list, tuple))
    if not listed and np.shape(arrays) == (size,):
        vector = np.asarray(arrays, "float64")
    else:
        if not listed:
            raise ValueError(
                f"`{name}` must be a list of arrays, one for each trainable "
                f"variable, or a vector of {size} numbers. Received: {name} "
                f"of type {type(arrays).__name__} and shape {np.shape(arrays)}"
            )
        given = [np.shape(array) for array in arrays]
        if given != [tuple(shape) for shape in shapes]:
            raise ValueError(
                f"`{name}` must have the shapes of the trainable variables, "
                f"{_short(shapes)}, or be one vector of {size} numbers. "
                f"Received: {name} of shapes {_short(given)}"
            )
        vector = np.concatenate(
            [np.ravel(np.asarray(a, "float64")) for a in arrays]
        )
    if not np.all(np.isfinite(vector)):
        raise ValueError(
            f"`{name}` must be finite. Received: {name} with NaN or infinity"
        )
    return vector


def as_arrays(vector: np.ndarray, shapes: list) -> list[np.ndarray]:
    """Returns the parts of a vector as arrays of the shapes, without a copy."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    return [p.reshape(s) for p, s in zip(parts, shapes, strict=True)]


def _short(shapes):
    shapes = [tuple(shape) for shape in shapes]
    return f"{shapes[:4]}{' ...' * (len(shapes) > 4)}"
