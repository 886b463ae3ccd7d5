"""How the noise of the gradient grows."""

import numpy as np

from keras_bdl.diagnostics.gradients.gradient_variance import (
    GradientVarianceReport,
)
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import method_styles
from keras_bdl.plots.canvas import open_axes


def gradient_variance(
    reports,
    of: str = "means",
    layer: str | None = None,
    label: str = "epoch",
    ax=None,
):
    """Draws the variance of the gradient of the likelihood, a line a method.

    The bands are one standard error wide on either side. Variances of zero,
    and those that overflow, are not drawn: the axis is logarithmic.

    Args:
        reports: Dict from the name of a method to a dict from positions, such
            as standard deviations or epochs, to the `GradientVarianceReport`
            there; `keras_bdl.callbacks.GradientVariance.reports` is one.
        of: `"means"` or `"rhos"`, with respect to which parameters. Defaults
            to `"means"`.
        layer: Name of a layer of the reports. Defaults to `None`, all of
            them.
        label: What the positions are. Defaults to `"epoch"`.
        ax: Matplotlib axes. Defaults to `None`, those of a new figure.

    Returns:
        The axes. `ax.set_xscale("log")` suits standard deviations.

    Example:

    ```python
    ax = keras_bdl.plots.gradient_variance(
        {"mean-field": a.reports, "Radial": b.reports}
    )
    ```
    """
    if of not in ("means", "rhos"):
        raise ValueError(f'`of` must be "means" or "rhos". Received: of={of!r}')
    curves = {
        name: _curve(name, found, of, layer)
        for name, found in _checked(reports).items()
    }
    ax = open_axes(ax)
    for name, style in method_styles(curves).items():
        x, variance, error = curves[name]
        ax.plot(
            x,
            variance,
            label=name,
            markersize=4,
            linewidth=1.6,
            **style,
        )
        # Below zero there is no logarithm.
        low = np.maximum(variance - error, variance / 10)
        ax.fill_between(
            x,
            low,
            variance + error,
            color=style["color"],
            alpha=0.2,
            linewidth=0,
        )
    ax.set_yscale("log")
    ax.set_xlabel(label)
    ax.set_ylabel("variance of the gradient")
    add_method_legend(ax)
    return ax


def _checked(reports):
    if not isinstance(reports, dict) or not reports:
        raise ValueError(
            "`reports` must be a dict from the name of a method to its "
            f"reports, with at least one. Received: reports={reports!r}"
        )
    for name, found in reports.items():
        known = isinstance(found, dict) and all(
            isinstance(one, GradientVarianceReport) for one in found.values()
        )
        if not (known and found):
            raise ValueError(
                f"`reports[{name!r}]` must be a dict from positions to what "
                "`keras_bdl.diagnostics.gradient_variance` returned, with at "
                f"least one. Received: {found!r}"
            )
    return reports


def _curve(name, reports, of, layer):
    numbers = []
    for position in sorted(reports):
        report = reports[position]
        if layer is None:
            numbers.append(getattr(report, of))
        elif layer in report.layers:
            numbers.append(report.layers[layer][of])
        else:
            raise ValueError(
                f"`layer` must be one of {sorted(report.layers)}, the layers "
                f"of `reports[{name!r}]`. Received: layer={layer!r}"
            )
    variance, error = (
        np.array([one[key] for one in numbers], "float64")
        for key in ("variance", "variance_error")
    )
    variance[~((variance > 0) & np.isfinite(variance))] = np.nan
    error = np.where(np.isfinite(error), error, 0.0)
    return np.array(sorted(reports), "float64"), variance, error
