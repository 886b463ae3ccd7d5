"""The training loss on a plane through the space of weights."""

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_near_network import LossSurface
from keras_bdl.diagnostics.loss_surface.loss_near_network import distances_of
from keras_bdl.diagnostics.loss_surface.loss_plane_report import LossPlane

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
