"""Vectors with an entry for each weight: parts, unit vectors, eigenvectors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def as_vector(name: str, arrays: Any, shapes: list) -> np.ndarray:
    """Returns one float64 vector with the entries of all arrays."""
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


def unit_vectors(directions: Any, shapes: list) -> np.ndarray:
    """Returns directions as rows of length 1."""
    if not isinstance(directions, (list, tuple, np.ndarray)) or not len(
        directions
    ):
        raise ValueError(
            "`directions` must be a list of directions, at least one, such as "
            "`posterior_eigenvectors(posterior).directions()`. "
            f"Received: directions of type {type(directions).__name__}"
        )
    units = []
    for i, direction in enumerate(directions):
        vector = as_vector(f"directions[{i}]", direction, shapes)
        length = np.linalg.norm(vector)
        if length == 0:
            raise ValueError(
                f"`directions[{i}]` must not be zero. Received: a vector of "
                "length 0"
            )
        units.append(vector / length)
    return np.stack(units)


def _short(shapes: list) -> str:
    shapes = [tuple(shape) for shape in shapes]
    return f"{shapes[:4]}{' ...' * (len(shapes) > 4)}"


# Fewest Lanczos vectors that ARPACK keeps. Smaller matrices are computed.
_VECTORS = 20


def eigenpairs(
    product: Callable[[np.ndarray], np.ndarray],
    *,
    size: int,
    count: int,
    which: str,
    tolerance: float = 0.0,
    max_restarts: int = 300,
    seed: int = 0,
    negligible: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest eigenvalues in order and their unit eigenvectors.

    The method is the implicitly restarted Lanczos method of ARPACK, which keeps
    its vectors orthogonal. For a matrix with few rows, ARPACK would save no
    products, because it needs at least one for each row. The function then
    computes the whole matrix and its eigenvectors. `which` is `"LM"`, largest
    magnitude, or `"LA"`, largest. A matrix whose product with a unit vector is
    at most `negligible` counts as zero.
    """
    from scipy.sparse import linalg

    kept = max(2 * count + 1, _VECTORS)
    if size <= kept:
        columns = [product(unit) for unit in np.eye(size)]
        matrix = np.stack(columns)
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    else:
        start = np.random.default_rng(seed).standard_normal((size, count))
        start, _ = np.linalg.qr(start)
        # ARPACK cannot start with a zero matrix.
        if np.linalg.norm(product(start[:, 0])) <= negligible:
            return np.zeros(count), start.T
        try:
            values, vectors = linalg.eigsh(
                linalg.LinearOperator((size, size), product, dtype="float64"),
                k=count,
                which=which,
                ncv=kept,
                tol=tolerance,
                maxiter=max_restarts,
                v0=start[:, 0],
            )
        except linalg.ArpackNoConvergence as error:
            raise RuntimeError(
                "The eigenvalues did not converge to `tolerance`. Raise "
                "`tolerance` or `max_restarts`. Received: "
                f"tolerance={tolerance}, max_restarts={max_restarts}"
            ) from error
    key = np.abs(values) if which == "LM" else values
    order = np.argsort(-key, kind="stable")[:count]
    return values[order], vectors[:, order].T
