"""What a posterior looks like from a few directions."""

import numpy as np

from keras_bdl.diagnostics.loss_surface.posterior_covariance import (
    PosteriorCovariance,
)
from keras_bdl.diagnostics.loss_surface.weight_vectors import as_vector


def projected_covariance(posterior, directions) -> np.ndarray:
    """Returns the covariance of the projections of weights on directions.

    For w drawn from the posterior, of covariance S, and unit vectors e_i,

        cov(e_i'w, e_j'w) = e_i' S e_j                                    (1)

    which is the Gaussian that one sees of a cloud of draws. Along an
    eigenvector of S it is the eigenvalue; along one of the low-rank part,
    the diagonal of S is added.

    Args:
        posterior: That of `keras_bdl.SWAG`, a `LowRankGaussian`, or a
            `Gaussian`.
        directions: List of directions, each a list of arrays in the shapes of
            the trainable variables, or a vector; made to unit length.

    Returns:
        Array of float64 with a row and a column for each direction.
    """
    covariance = PosteriorCovariance(posterior)
    units = unit_vectors(directions, covariance.shapes)
    products = np.stack([covariance.times(unit) for unit in units])
    matrix = products @ units.T  # (1)
    return (matrix + matrix.T) / 2


def project_weights(weights, directions, center) -> np.ndarray:
    """Returns the coordinates of some weights in given directions.

        t_i = e_i'(w - center)                                            (2)

    Args:
        weights: List of networks, such as those that SGD passed through, each
            a list of arrays in the shapes of the trainable variables.
        directions: As of `projected_covariance`.
        center: List of arrays, or a vector: the origin.

    Returns:
        Array of float64 with a row for each network and a column for each
        direction.
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


def unit_vectors(directions, shapes) -> np.ndarray:
    """Returns directions as rows of length 1.

    Args:
        directions: As of `projected_covariance`.
        shapes: Of the trainable variables.
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
