"""Plots of the loss along rays and on a plane."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl.diagnostics._loss_sections import LossCrossSectionReport
from keras_bdl.diagnostics._loss_sections import LossPlaneReport
from keras_bdl.plots._canvas import COLORS
from keras_bdl.plots._canvas import DARK
from keras_bdl.plots._canvas import GREY
from keras_bdl.plots._canvas import add_method_legend
from keras_bdl.plots._canvas import open_axes
from keras_bdl.plots._canvas import pyplot


def loss_cross_section(
    section: LossCrossSectionReport,
    *,
    labels: Sequence[str] | None = None,
    stddevs: float = 3.0,
    gaussian: bool = False,
    ax: Any = None,
) -> Any:
    """Draws loss and penalty along rays, one line per direction.

    Use it to compare a posterior with the loss. The thick part of a line shows
    the distances up to `stddevs` standard deviations of the posterior. If the
    posterior fits the loss, all thick parts end at about the same loss. Values
    that are not finite are not drawn.

    Args:
        section: Result of `keras_bdl.diagnostics.loss_cross_section`.
        labels: Names of the directions. Defaults to `None`, numbers.
        stddevs: Half the length of the thick parts, in standard deviations.
            Defaults to `3.0`.
        gaussian: Whether to draw, as dotted lines, the loss for which the
            posterior would be exact. Defaults to `False`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes. If the surface is steep, use `ax.set_yscale("log")` and
        `ax.set_ylim` to make the minimum visible.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=0, rank=2)
    model.fit(x, y, epochs=4, callbacks=[swag], verbose=0)
    axes = keras_bdl.diagnostics.posterior_eigenvectors(
        swag.posterior, count=2
    )
    section = keras_bdl.diagnostics.loss_cross_section(
        model, train, axes.directions(), distances=[-1, 0, 1]
    )
    keras_bdl.plots.loss_cross_section(section)
    ```
    """
    labels = _checked_section(section, labels, gaussian)
    check_number("stddevs", stddevs, at_least=0)
    distances = np.array(section.distances)
    order = np.argsort(distances)
    distances, total = distances[order], section.total[:, order]
    total = np.where(np.isfinite(total), total, np.nan)
    ax = open_axes(ax)
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    for i, name in enumerate(labels):
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
        # Plots no points: only adds an entry to the legend.
        label = f"within {stddevs:g} standard deviations"
        ax.plot([], [], color=GREY, linewidth=3.2, label=label)
    if gaussian:
        _draw_gaussians(ax, section, distances, total)
    ax.set_xlabel("distance from the center")
    ax.set_ylabel("loss and penalty")
    add_method_legend(ax)
    return ax


def _draw_gaussians(
    ax: Any, section: Any, distances: np.ndarray, total: np.ndarray
) -> None:
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


def _checked_section(
    section: Any, labels: Sequence[str] | None, gaussian: bool
) -> list[str]:
    if not isinstance(section, LossCrossSectionReport):
        raise ValueError(
            "`section` must be a result of "
            "`keras_bdl.diagnostics.loss_cross_section`. "
            f"Received: section of type {type(section).__name__}"
        )
    check_bool("gaussian", gaussian)
    if gaussian and section.stddevs is None:
        raise ValueError(
            "`gaussian=True` needs a `section` that was measured with "
            f"`center=posterior`. Received: gaussian={gaussian!r}"
        )
    count = len(section.loss)
    if labels is None:
        return [f"direction {i}" for i in range(1, count + 1)]
    if isinstance(labels, str) or len(labels) != count:
        raise ValueError(
            f"`labels` must have one name for each of the {count} directions. "
            f"Received: labels={labels!r}"
        )
    return list(labels)


# Height of the lowest contour, relative to the range of the loss.
_LOWEST = 1e-3


def loss_plane(
    plane: LossPlaneReport,
    *,
    trajectory: ArrayLike | None = None,
    labels: Sequence[str] = ("direction 1", "direction 2"),
    stddevs: float = 3.0,
    levels: int = 12,
    highest: float | None = None,
    ax: Any = None,
) -> Any:
    """Draws contours of loss and penalty on a plane.

    Use it to see the loss around a posterior or along the path of SGD. The
    contours are denser near the minimum: the differences between their losses
    and the minimum form a geometric sequence. An ellipse shows the posterior,
    a cross shows its center.

    Args:
        plane: Result of `keras_bdl.diagnostics.loss_plane`.
        trajectory: Array of shape `(networks, 2)` with coordinates on the
            plane, such as the path of SGD.
            `keras_bdl.extend.project_weights` computes the coordinates.
            Defaults to `None`.
        labels: Names of the two directions. Defaults to
            `("direction 1", "direction 2")`.
        stddevs: Radius of the ellipse, in standard deviations. Defaults to
            `3.0`.
        levels: Number of contours, at least 2. Defaults to `12`.
        highest: Loss of the highest contour. Defaults to `None`, the highest
            value on the plane.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.
    """
    total, trajectory = _checked_plane(plane, trajectory, labels, levels)
    first, second = map(np.array, plane.distances)
    rows, columns = np.argsort(first), np.argsort(second)
    total = total[np.ix_(rows, columns)]
    lowest = total.min()
    height = (total.max() if highest is None else highest) - lowest
    if not height > 0:
        raise ValueError(
            "`plane` must rise above its lowest value, and `highest` must be "
            "above this value. "
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
    ax.set_xlabel(f"distance along {labels[0]}")
    ax.set_ylabel(f"distance along {labels[1]}")
    add_method_legend(ax)
    return ax


def _circle(covariance: ArrayLike) -> np.ndarray:
    """Returns points one standard deviation away from the center."""
    angles = np.linspace(0, 2 * np.pi, 201)
    values, vectors = np.linalg.eigh(covariance)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))
    return roots @ np.stack([np.cos(angles), np.sin(angles)])


def _norm(lowest: float, heights: list[float]) -> Any:
    return pyplot().matplotlib.colors.BoundaryNorm(
        lowest + np.array(heights), ncolors=256, extend="max"
    )


def _checked_plane(
    plane: Any, trajectory: ArrayLike | None, labels: Sequence[str], levels: int
) -> tuple[Any, np.ndarray | None]:
    if not isinstance(plane, LossPlaneReport):
        raise ValueError(
            "`plane` must be a result of `keras_bdl.diagnostics.loss_plane`. "
            f"Received: plane of type {type(plane).__name__}"
        )
    if min(map(len, plane.distances)) < 2:
        raise ValueError(
            "`plane` must have at least two distances along each direction. "
            f"Received: {[len(d) for d in plane.distances]}"
        )
    if np.shape(labels) != (2,):
        raise ValueError(
            "`labels` must be the names of the two directions. "
            f"Received: labels={labels!r}"
        )
    check_count("levels", levels, at_least=2)
    if trajectory is not None:
        trajectory = np.asarray(trajectory, "float64")
        if trajectory.ndim != 2 or trajectory.shape[1] != 2:
            raise ValueError(
                "`trajectory` must have two coordinates in a row. Received: "
                f"trajectory of shape {trajectory.shape}"
            )
    total = np.ma.masked_invalid(plane.total)
    if not total.count():
        raise ValueError(
            "`plane` must have a finite value. Received: NaN or infinity at "
            "every point"
        )
    return total, trajectory
