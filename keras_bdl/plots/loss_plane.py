"""The loss on a plane, with what the posterior makes of it."""

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_plane_report import LossPlane
from keras_bdl.plots.canvas import DARK
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import open_axes
from keras_bdl.plots.canvas import pyplot

# Of the range of the loss: where the lowest contour lies.
_LOWEST = 1e-3


def loss_plane(
    plane,
    trajectory=None,
    names=("direction 1", "direction 2"),
    stddevs: float = 3.0,
    levels: int = 12,
    highest: float | None = None,
    ax=None,
):
    """Draws contours of loss and penalty on a plane.

    The levels lie more densely close to the minimum: their heights above it
    are a geometric sequence. An ellipse shows the posterior, a cross its
    center.

    Args:
        plane: What `keras_bdl.diagnostics.loss_plane` returned.
        trajectory: Array with the two coordinates of one network a row, such
            as those that SGD passed through, from
            `keras_bdl.diagnostics.project_weights`. Defaults to `None`.
        names: Those of both directions.
        stddevs: How many of them the ellipse reaches out. Defaults to `3.0`.
        levels: Number of contours. Defaults to `12`.
        highest: Where contours end. Defaults to `None`, the highest value.
        ax: Matplotlib axes. Defaults to `None`, those of a new figure.

    Returns:
        The axes.
    """
    total, trajectory = _checked(plane, trajectory, names, levels)
    first, second = map(np.array, plane.distances)
    rows, columns = np.argsort(first), np.argsort(second)
    total = total[np.ix_(rows, columns)]
    lowest = total.min()
    height = (total.max() if highest is None else highest) - lowest
    if not height > 0:
        raise ValueError(
            "`plane` must rise above its lowest value, below `highest`. "
            f"Received: lowest={lowest:.6g}, highest={highest}"
        )
    heights = [0.0, *np.geomspace(_LOWEST * height, height, levels)]
    ax = open_axes(ax)
    ax.grid(False)
    contours = ax.contourf(
        first[rows],
        second[columns],
        total.T,
        lowest + np.array(heights),
        norm=_norm(lowest, heights),
        cmap="viridis_r",
        extend="max" if highest is not None else "neither",
    )
    bar = ax.figure.colorbar(contours, ax=ax, label="loss and penalty")
    bar.ax.minorticks_off()
    if trajectory is not None:
        ax.plot(
            *trajectory.T,
            "o-",
            color="#D55E00",
            markersize=3,
            linewidth=0.8,
            label="trajectory",
        )
    if plane.covariance is not None:
        ax.plot(
            *(stddevs * _circle(plane.covariance)),
            "--",
            color=DARK,
            linewidth=1.6,
            label=f"posterior, {stddevs:g} standard deviations",
        )
    ax.plot(0, 0, "x", color=DARK, markersize=7, label="center")
    ax.set_xlim(first.min(), first.max())
    ax.set_ylim(second.min(), second.max())
    ax.set_xlabel(f"distance along {names[0]}")
    ax.set_ylabel(f"distance along {names[1]}")
    add_method_legend(ax)
    return ax


def _circle(covariance):
    """Returns points at one standard deviation of a Gaussian."""
    angles = np.linspace(0, 2 * np.pi, 201)
    values, vectors = np.linalg.eigh(covariance)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))
    return roots @ np.stack([np.cos(angles), np.sin(angles)])


def _norm(lowest, heights):
    return pyplot().matplotlib.colors.BoundaryNorm(
        lowest + np.array(heights), ncolors=256, extend="max"
    )


def _checked(plane, trajectory, names, levels):
    if not isinstance(plane, LossPlane):
        raise ValueError(
            "`plane` must be what `keras_bdl.diagnostics.loss_plane` returned. "
            f"Received: plane of type {type(plane).__name__}"
        )
    if min(map(len, plane.distances)) < 2:
        raise ValueError(
            "`plane` must have at least two distances along each direction. "
            f"Received: {[len(d) for d in plane.distances]}"
        )
    if np.shape(names) != (2,):
        raise ValueError(
            "`names` must be those of the two directions. "
            f"Received: names={names!r}"
        )
    if levels < 2:
        raise ValueError(
            f"`levels` must be at least 2. Received: levels={levels}"
        )
    if trajectory is not None:
        trajectory = np.asarray(trajectory, "float64")
        if trajectory.ndim != 2 or trajectory.shape[1] != 2:
            raise ValueError(
                "`trajectory` must have two coordinates a row. Received: "
                f"trajectory of shape {trajectory.shape}"
            )
    total = np.ma.masked_invalid(plane.total)
    if not total.count():
        raise ValueError(
            "`plane` must have a finite value. Received: NaN or infinity at "
            "every point"
        )
    return total, trajectory
