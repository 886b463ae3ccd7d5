"""The training loss on a plane through the space of weights."""

import dataclasses

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_cross_section import (
    LossSurfaceReport,
)
from keras_bdl.diagnostics.loss_surface.loss_near_network import LossSurface
from keras_bdl.diagnostics.loss_surface.loss_near_network import distances_of


@dataclasses.dataclass(frozen=True)
class LossPlane(LossSurfaceReport):
    """Loss on a grid. Made by `loss_plane`.

    `loss`, `penalty` and `error` have a list for each distance along the
    first direction, with an entry for each along the second.

    Attributes:
        examples: How many examples there were, N.
        distances: A list for each direction, from the center.
        loss: Mean loss of the examples, without penalties.
        penalty: Regularizers, weight decay and prior, for an example.
        error: Share of wrong classifications; NaN if there are no classes.
        covariance: Of the posterior in the plane, or `None`.
    """

    covariance: list | None = None

    @property
    def posterior_energy(self) -> np.ndarray | None:
        """What `total` would gain from the center on, were it Gaussian.

        `t' S^-1 t / (2 N)` with the covariance S of the posterior, the
        negative log of its projected density for an example; `None` without.
        """
        if self.covariance is None:
            return None
        points = np.stack(np.meshgrid(*self.distances, indexing="ij"), -1)
        precision = np.linalg.inv(self.covariance)
        squares = np.einsum("abi,ij,abj->ab", points, precision, points)
        return squares / (2 * self.examples)

    def title(self) -> str:
        """Returns the first line."""
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


# Largest cosine of the angle between the directions: rounding.
_COSINE = 1e-4


def loss_plane(
    model,
    data,
    directions,
    distances,
    center=None,
    loss=None,
    weight_decay: float = 0.0,
    prior=None,
    batch_norm_data=None,
    batch_norm_fraction: float = 1.0,
    batch_size: int | None = None,
    verbose="auto",
) -> LossPlane:
    """Evaluates the loss on a grid in the plane of two directions.

        psi(t_1, t_2) = L(center + t_1 v_1 / |v_1| + t_2 v_2 / |v_2|)     (1)

    with L of `loss_cross_section`. The directions must be orthogonal, so that
    distances in the plane are those of the weights.

    Args:
        model: As of `loss_cross_section`, as all others but these two.
        data: See there.
        directions: Two of them, orthogonal.
        distances: The values of t_1 and t_2, numbers, or a pair of lists of
            numbers where they differ.
        center: See there; with a posterior, the report has its covariance in
            the plane.
        loss: See there.
        weight_decay: See there.
        prior: See there.
        batch_norm_data: See there.
        batch_norm_fraction: See there.
        batch_size: See there.
        verbose: See there.

    Returns:
        A `LossPlane`, which `keras_bdl.plots.loss_plane` draws.

    Example:

    ```python
    axes = keras_bdl.diagnostics.posterior_eigenvectors(swag.posterior, 2)
    plane = keras_bdl.diagnostics.loss_plane(
        model,
        train,
        axes.directions(),
        distances=np.linspace(-1, 1, 13),
        center=swag.posterior,
        batch_norm_data=train,
    )
    keras_bdl.plots.loss_plane(plane)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.3
    """
    first, second = _pair(distances)
    surface = LossSurface(
        model,
        data,
        directions,
        center,
        loss,
        weight_decay,
        prior,
        batch_norm_data,
        batch_norm_fraction,
        batch_size,
        verbose,
    )
    _check_plane(surface.units)
    # All of the second for each of the first.
    points = np.stack(np.meshgrid(first, second, indexing="ij"), -1)
    found = surface.at(points.reshape(-1, 2))
    covariance = surface.covariance
    return LossPlane(
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
            "`directions` must be orthogonal; take from the second what it "
            "has of the first, as `np.linalg.qr` does. "
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
