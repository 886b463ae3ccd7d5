"""Projections of weights and of a posterior on a few directions."""

from typing import Any

import numpy as np

from keras_bdl.diagnostics._loss_surface._posterior_covariance import (
    PosteriorCovariance,
)
from keras_bdl.diagnostics._loss_surface._weight_vectors import as_vector
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian


def projected_covariance(
    posterior: Gaussian | LowRankGaussian, directions: Any
) -> np.ndarray:
    """Returns the covariance of the projections of weights on directions.

    Use it to draw the posterior on a plane. For w sampled from the posterior
    with covariance S, and unit vectors e_i,

        cov(e_i'w, e_j'w) = e_i' S e_j                                    (1)

    Along an eigenvector of S, the variance is the eigenvalue. Along an
    eigenvector of the low-rank part, the variance is the eigenvalue plus the
    variance of the diagonal part.

    Args:
        posterior: A `LowRankGaussian`, such as the one of `keras_bdl.SWAG`, or
            a `Gaussian`.
        directions: List of directions, each a list of arrays in the shapes of
            the trainable variables, or a vector. The function scales the
            directions to unit length.

    Returns:
        Array of float64 with a row and a column for each direction.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=0)
    model.fit(x, y, epochs=4, callbacks=[swag], verbose=0)
    direction = [np.ones(v.shape) for v in model.trainable_variables]
    keras_bdl.diagnostics.projected_covariance(swag.posterior, [direction])
    ```
    """
    covariance = PosteriorCovariance(posterior)
    units = unit_vectors(directions, covariance.shapes)
    products = np.stack([covariance.times(unit) for unit in units])
    matrix = products @ units.T  # (1)
    return (matrix + matrix.T) / 2


def project_weights(weights: list, directions: Any, center: Any) -> np.ndarray:
    """Returns the coordinates of networks along given directions.

    Use it to draw the path of SGD on a plane.

        t_i = e_i'(w - center)                                            (2)

    Args:
        weights: List of networks, each a list of arrays in the shapes of the
            trainable variables.
        directions: List of directions, each a list of arrays in the shapes of
            the trainable variables, or a vector. The function scales the
            directions to unit length.
        center: The origin, a list of arrays or a vector.

    Returns:
        Array of float64 with a row for each network and a column for each
        direction.

    Example:

    ```python
    center = model.get_weights()
    direction = [np.ones_like(w) for w in center]
    moved = [w + 0.1 for w in center]
    keras_bdl.diagnostics.project_weights([moved], [direction], center)
    ```
    """
    shapes = _shapes_of(weights)
    units = unit_vectors(directions, shapes)
    origin = as_vector("center", center, shapes)
    return np.stack(
        [
            units @ (as_vector(f"weights[{i}]", one, shapes) - origin)  # (2)
            for i, one in enumerate(weights)
        ]
    )


def unit_vectors(directions: Any, shapes: list) -> np.ndarray:
    """Returns directions as rows of length 1.

    Args:
        directions: List of directions, each a list of arrays or a vector.
        shapes: Shapes of the trainable variables.
    """
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


def _shapes_of(weights):
    if not isinstance(weights, (list, tuple)) or not weights:
        raise ValueError(
            "`weights` must be a list of networks, at least one, each a list "
            f"of arrays. Received: weights of type {type(weights).__name__}"
        )
    return [np.shape(array) for array in weights[0]]
