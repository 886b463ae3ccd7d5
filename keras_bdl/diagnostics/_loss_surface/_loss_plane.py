"""The training loss on a plane through weight space."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Data
from keras_bdl._inherited_arguments import inherits_arguments
from keras_bdl.diagnostics._loss_surface._loss_cross_section import (
    LossSurfaceReport,
)
from keras_bdl.diagnostics._loss_surface._loss_near_network import LossSurface
from keras_bdl.diagnostics._loss_surface._loss_near_network import distances_of


@dataclasses.dataclass(frozen=True)
class LossPlaneReport(LossSurfaceReport):
    """Loss on a grid, made by `loss_plane`.

    `loss`, `penalty` and `error` have a list for each distance along the first
    direction, with an entry for each distance along the second direction.

    Attributes:
        examples: N, number of examples.
        distances: A list of distances from the center for each direction.
        loss: Mean loss of the examples, without penalties.
        penalty: Regularizers, weight decay and prior, per example.
        error: Share of wrong classifications, NaN unless the model is a
            classifier with one output.
        covariance: Covariance of the posterior in the plane. `None` unless
            `center` is a `Gaussian` or `LowRankGaussian`.
    """

    covariance: list | None = None

    @property
    def posterior_energy(self) -> np.ndarray | None:
        """Rise of `total` above the center, according to the posterior.

        The rise is `t' S^-1 t / (2 N)`, with the covariance S of the posterior
        in the plane. This is the negative log density of the projected
        posterior, per example, up to a constant. `None` if `covariance` is
        `None`.
        """
        if self.covariance is None:
            return None
        points = np.stack(np.meshgrid(*self.distances, indexing="ij"), -1)
        precision = np.linalg.inv(self.covariance)
        squares = np.einsum("abi,ij,abj->ab", points, precision, points)
        return squares / (2 * self.examples)

    def title(self) -> str:
        """Returns the first line of the printed report."""
        first, second = map(len, self.distances)
        return (
            f"Loss of {self.examples} examples on a plane, {first} times "
            f"{second} points"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        total, rows = self.total, []
        for name, flat in (
            ("lowest", np.nanargmin(total)),
            ("highest", np.nanargmax(total)),
        ):
            place = np.unravel_index(flat, total.shape)
            at = [d[i] for d, i in zip(self.distances, place, strict=True)]
            rows.append([name, total[place], f"{at[0]:g}", f"{at[1]:g}"])
        if self.covariance is not None:
            stddevs = np.sqrt(np.diag(self.covariance))
            rows.append(["stddev of the posterior", "", *stddevs])
        header = ["", "loss", "along 1", "along 2"]
        return [("Loss and penalty", [header, *rows])]


# Directions with a smaller cosine count as orthogonal, because of rounding.
_COSINE = 1e-4


@inherits_arguments(LossSurface)
def loss_plane(
    model: keras.Model,
    data: Data,
    directions: Any,
    *,
    distances: ArrayLike | tuple[ArrayLike, ArrayLike],
    **options: Any,
) -> LossPlaneReport:
    """Evaluates the loss on a grid in the plane of two directions.

    Use it to draw the loss around a network together with the posterior of
    `keras_bdl.SWAG` or with the path of SGD.

        psi(t_1, t_2) = L(center + t_1 v_1 / |v_1| + t_2 v_2 / |v_2|)     (1)

    with L of `loss_cross_section`. The directions must be orthogonal, so that
    distances in the plane are distances between weights.

    Args:
        model: A built Keras model with ordinary weights.
        data: The training data `(x, y)` or `(x, y, sample_weight)` as arrays,
            or a batched `tf.data.Dataset` or `keras.utils.PyDataset`. All data
            are read for every point, so use neither augmentation nor
            shuffling.
        directions: Two orthogonal directions. Each is a list of arrays in the
            shapes of the trainable variables, or a vector.
        distances: The values of t_1 and t_2: one list of numbers for both, or a
            pair of lists.
        **options: Passed to `LossSurface`.

    Returns:
        A `LossPlaneReport` for `keras_bdl.plots.loss_plane`.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=0, rank=2)
    model.fit(x, y, epochs=4, callbacks=[swag])
    axes = keras_bdl.diagnostics.posterior_eigenvectors(
        swag.posterior, count=2
    )
    plane = keras_bdl.diagnostics.loss_plane(
        model,
        train,
        axes.directions(),
        distances=np.linspace(-1, 1, 5),
        center=swag.posterior,
    )
    keras_bdl.plots.loss_plane(plane)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.3
    """
    first, second = _pair(distances)
    surface = LossSurface(model, data, directions, **options)
    _check_plane(surface.units)
    # All distances t_2 for each distance t_1.
    points = np.stack(np.meshgrid(first, second, indexing="ij"), -1)
    found = surface.at(points.reshape(-1, 2))
    covariance = surface.covariance
    return LossPlaneReport(
        examples=surface.examples,
        distances=[first.tolist(), second.tolist()],
        covariance=None if covariance is None else covariance.tolist(),
        **{k: v.reshape(points.shape[:2]).tolist() for k, v in found.items()},
    )


def _check_plane(units):
    if len(units) != 2:
        raise ValueError(
            "`directions` must hold two directions, such as "
            "`posterior_eigenvectors(posterior).directions(0, 1)`. "
            f"Received: {len(units)} directions"
        )
    cosine = units[0] @ units[1]
    if abs(cosine) > _COSINE:
        raise ValueError(
            "`directions` must be orthogonal. Subtract the projection on the "
            "first direction from the second, as `np.linalg.qr` does. "
            f"Received: directions with a cosine of {cosine:.3g}"
        )


def _pair(distances):
    if isinstance(distances, (list, tuple)) and [
        np.ndim(d) for d in distances
    ] == [1, 1]:
        names = ("distances[0]", "distances[1]")
        return [
            distances_of(n, d) for n, d in zip(names, distances, strict=True)
        ]
    return [distances_of("distances", distances)] * 2
