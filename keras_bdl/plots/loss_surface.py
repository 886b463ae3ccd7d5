"""The loss on rays and on a plane."""

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_cross_section import (
    LossCrossSectionReport,
)
from keras_bdl.diagnostics.loss_surface.loss_plane import LossPlaneReport
from keras_bdl.plots.canvas import COLORS
from keras_bdl.plots.canvas import DARK
from keras_bdl.plots.canvas import GREY
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import open_axes
from keras_bdl.plots.canvas import pyplot


def loss_cross_section(
    section,
    names=None,
    stddevs: float = 3.0,
    gaussian: bool = False,
    ax=None,
):
    """Draws loss and penalty along rays, a line a direction.

    The thick part of a line lies within some standard deviations of the
    posterior. Where it has captured the geometry, all thick parts end at
    about the same loss. Values that are not finite are not drawn.

    Args:
        section: What `keras_bdl.diagnostics.loss_cross_section` returned.
        names: Those of the directions. Defaults to `None`, numbers.
        stddevs: How far the thick parts reach. Defaults to `3.0`.
        gaussian: Whether to draw, dotted, the loss that would make the
            posterior exact, as far as it fits on the axes. Defaults to
            `False`.
        ax: Matplotlib axes. Defaults to `None`, those of a new figure.

    Returns:
        The axes. `ax.set_yscale("log")` and `ax.set_ylim` show a minimum in
        a surface that rises steeply.
    """
    names = _checked_section(section, names, gaussian)
    distances = np.array(section.distances)
    order = np.argsort(distances)
    distances, total = distances[order], section.total[:, order]
    total = np.where(np.isfinite(total), total, np.nan)
    ax = open_axes(ax)
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    for i, name in enumerate(names):
        color = COLORS[i % len(COLORS)]
        ax.plot(distances, total[i], color=color, linewidth=1.1, label=name)
        if section.stddevs is None:
            continue
        reach = stddevs * section.stddevs[i]
        ends = np.clip([-reach, reach], distances[0], distances[-1])
        inside = distances[(distances > ends[0]) & (distances < ends[1])]
        x = np.unique([ends[0], *inside, ends[1]])
        y = np.interp(x, distances, total[i])
        ax.plot(x, y, color=color, linewidth=3.2, solid_capstyle="butt")
    if section.stddevs is not None:
        # Lines of the legend that nothing is drawn for.
        label = f"within {stddevs:g} standard deviations"
        ax.plot([], [], color=GREY, linewidth=3.2, label=label)
    if gaussian:
        _draw_gaussians(ax, section, distances, total)
    ax.set_xlabel("distance from the center")
    ax.set_ylabel("loss and penalty")
    add_method_legend(ax)
    return ax


def _draw_gaussians(ax, section, distances, total):
    limits = ax.get_ylim()
    ax.plot([], [], ":", color=GREY, linewidth=1.2, label="if Gaussian")
    x = np.linspace(distances[0], distances[-1], 200)
    for i, (stddev, values) in enumerate(
        zip(section.stddevs, total, strict=True)
    ):
        center = np.interp(0.0, distances, values)
        rise = np.square(x / stddev) / (2 * section.examples)
        color = COLORS[i % len(COLORS)]
        ax.plot(x, center + rise, ":", color=color, linewidth=1.2)
    ax.set_ylim(limits)


def _checked_section(section, names, gaussian):
    if not isinstance(section, LossCrossSectionReport):
        raise ValueError(
            "`section` must be what `keras_bdl.diagnostics.loss_cross_section`"
            f" returned. Received: section of type {type(section).__name__}"
        )
    if gaussian and section.stddevs is None:
        raise ValueError(
            "`gaussian` must be `False` where `section` was not measured "
            "around a posterior, with `center=posterior`. "
            f"Received: gaussian={gaussian!r}"
        )
    count = len(section.loss)
    if names is None:
        return [f"direction {i}" for i in range(1, count + 1)]
    if isinstance(names, str) or len(names) != count:
        raise ValueError(
            f"`names` must have one for each of the {count} directions. "
            f"Received: names={names!r}"
        )
    return list(names)


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
    total, trajectory = _checked_plane(plane, trajectory, names, levels)
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


def _checked_plane(plane, trajectory, names, levels):
    if not isinstance(plane, LossPlaneReport):
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
