"""How the loss rises along rays."""

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_cross_section_report import (
    LossCrossSection,
)
from keras_bdl.plots.canvas import COLORS
from keras_bdl.plots.canvas import GREY
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import open_axes


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
    names = _checked(section, names, gaussian)
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


def _checked(section, names, gaussian):
    if not isinstance(section, LossCrossSection):
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
