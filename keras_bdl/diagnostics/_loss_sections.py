"""`loss_cross_section` and `loss_plane`: the loss on lines and planes."""

import dataclasses
from typing import Any
from typing import Unpack

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Data
from keras_bdl._reports import Report
from keras_bdl.diagnostics._loss_surface import LossSurface
from keras_bdl.diagnostics._loss_surface import LossSurfaceOptions
from keras_bdl.diagnostics._loss_surface import distances_of


@dataclasses.dataclass(frozen=True)
class LossSurfaceReport(Report):
    """Base of the reports on the loss at many points of weight space."""

    examples: int
    distances: list
    loss: list
    penalty: list
    error: list

    @property
    def total(self) -> np.ndarray:
        """Sum of loss and penalty, an array in the shape of `loss`."""
        return np.array(self.loss) + np.array(self.penalty)

    @property
    def log_density(self) -> np.ndarray:
        """Log posterior density, up to a constant, with maximum zero."""
        return -self.examples * (self.total - np.nanmin(self.total))


@dataclasses.dataclass(frozen=True)
class LossCrossSectionReport(LossSurfaceReport):
    """Loss along rays, made by `loss_cross_section`.

    `loss`, `penalty` and `error` have a list for each direction, with an entry
    for each distance.

    Attributes:
        examples: N, number of examples.
        distances: Distances from the center.
        loss: Mean loss of the examples, without penalties.
        penalty: Regularizers, weight decay and prior, per example.
        error: Share of wrong classifications, NaN unless the model is a
            classifier with one output.
        stddevs: Standard deviation of the posterior along each direction.
            `None` unless `center` is a `Gaussian` or `LowRankGaussian`.
    """

    stddevs: list | None = None

    @property
    def posterior_energy(self) -> np.ndarray | None:
        """Rise of `total` above the center, according to the posterior.

        The rise is `t^2 / (2 N s^2)`, with the distances t and the standard
        deviations s of the posterior. This is the negative log density of the
        projected posterior, per example, up to a constant. `None` if `stddevs`
        is `None`.
        """
        if self.stddevs is None:
            return None
        ratios = np.divide.outer(np.square(self.distances), self.stddevs)
        ratios = np.divide(ratios, self.stddevs)
        return ratios.T / (2 * self.examples)

    def title(self) -> str:
        return (
            f"Loss of {self.examples} examples along {len(self.loss)} "
            f"directions, {len(self.distances)} points from "
            f"{min(self.distances):g} to {max(self.distances):g}"
        )

    def sections(self) -> list:
        rows: list[list] = [["", "lowest", "at", "highest", "stddev"]]
        for i, total in enumerate(self.total):
            lowest = self.distances[int(np.nanargmin(total))]
            stddev = float("nan") if self.stddevs is None else self.stddevs[i]
            rows.append(
                [
                    str(i),
                    np.nanmin(total),
                    f"{lowest:g}",
                    np.nanmax(total),
                    stddev,
                ]
            )
        return [("Loss and penalty, and the posterior", rows)]


def loss_cross_section(
    model: keras.Model,
    data: Data,
    directions: Any,
    *,
    distances: ArrayLike,
    **options: Unpack[LossSurfaceOptions],
) -> LossCrossSectionReport:
    """Evaluates the loss on lines through a network.

    Use it to compare the shape of the loss with the posterior of
    `keras_bdl.SWAG`. Along each direction v_i, scaled to unit length, the loss
    is

        phi_i(t) = L(center + t v_i / |v_i|)                              (1)
        L(w) = nll(w) + penalty(w)                                        (2)
        penalty(w) = regularizers(w) + a/2 |w|^2 - log p(w) / N           (3)

    with nll the mean loss over the N examples, a the `weight_decay` and p the
    `prior`. -N L is the log of the posterior density, up to a constant. The
    model is called with `training=False`. TensorFlow traces the model once for
    all points and later calls. Afterwards the model is unchanged, also after an
    error.

    Args:
        model: A built Keras model with ordinary weights.
        data: The training data `(x, y)` or `(x, y, sample_weight)` as arrays,
            or a batched `tf.data.Dataset` or `keras.utils.PyDataset`. All data
            are read for every point, so use neither augmentation nor
            shuffling.
        directions: List of directions. Each is a list of arrays in the shapes
            of the trainable variables, or a vector, such as
            `posterior_eigenvectors(posterior).directions()`.
        distances: The values of t, a list of numbers.
        **options: `center`, `loss`, `weight_decay`, `prior` and others: see
            `keras_bdl.extend.LossSurfaceOptions`.

    Returns:
        A `LossCrossSectionReport` for `keras_bdl.plots.loss_cross_section`.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=0, rank=2)
    model.fit(x, y, epochs=4, callbacks=[swag])
    axes = keras_bdl.diagnostics.posterior_eigenvectors(
        swag.posterior, count=2
    )
    section = keras_bdl.diagnostics.loss_cross_section(
        model,
        (x, y),
        axes.directions(),
        distances=np.linspace(-1, 1, 5),
        center=swag.posterior,
        weight_decay=5e-4,
    )
    keras_bdl.plots.loss_cross_section(section)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.3
    """
    distances = distances_of("distances", distances)
    surface = LossSurface(model, data, directions, **options)
    count = len(surface.units)
    points = np.kron(np.eye(count), distances[:, None])
    found = surface.at(points)
    stddevs = None
    if surface.covariance is not None:
        stddevs = np.sqrt(np.diag(surface.covariance)).tolist()
    return LossCrossSectionReport(
        examples=surface.examples,
        distances=distances.tolist(),
        stddevs=stddevs,
        **{k: v.reshape(count, -1).tolist() for k, v in found.items()},
    )


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
        first, second = map(len, self.distances)
        return (
            f"Loss of {self.examples} examples on a plane, {first} times "
            f"{second} points"
        )

    def sections(self) -> list:
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


def loss_plane(
    model: keras.Model,
    data: Data,
    directions: Any,
    *,
    distances: ArrayLike | tuple[ArrayLike, ArrayLike],
    **options: Unpack[LossSurfaceOptions],
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
        **options: `center`, `loss`, `weight_decay`, `prior` and others: see
            `keras_bdl.extend.LossSurfaceOptions`.

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


def _check_plane(units: Any) -> None:
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


def _pair(distances: Any) -> Any:
    if isinstance(distances, (list, tuple)) and [
        np.ndim(d) for d in distances
    ] == [1, 1]:
        names = ("distances[0]", "distances[1]")
        return [
            distances_of(n, d) for n, d in zip(names, distances, strict=True)
        ]
    return [distances_of("distances", distances)] * 2
