"""Plot of the variance of the gradient over epochs or other positions."""

from typing import Any

import numpy as np

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import did_you_mean
from keras_bdl.diagnostics._gradient_variance import GradientVarianceReport
from keras_bdl.plots._canvas import add_method_legend
from keras_bdl.plots._canvas import method_styles
from keras_bdl.plots._canvas import open_axes


def gradient_variance(
    reports: dict[str, dict],
    *,
    of: str = "means",
    layer: str | None = None,
    label: str = "epoch",
    ax: Any = None,
) -> Any:
    """Draws the variance of the likelihood gradient, one line per method.

    Use it with the reports of `keras_bdl.callbacks.GradientVariance` or of
    `keras_bdl.diagnostics.gradient_variance`. The bands show one standard
    error on either side. The vertical axis is logarithmic, so values that are
    zero or not finite are not drawn.

    Args:
        reports: Dict from the name of a method to the reports of the method.
            The reports are a dict from positions, such as epochs or standard
            deviations, to `GradientVarianceReport` objects, such as
            `keras_bdl.callbacks.GradientVariance.reports`.
        of: Parameters that the gradient is with respect to, `"means"` or
            `"rhos"`. Defaults to `"means"`.
        layer: Name of a layer in the reports. Defaults to `None`, all layers
            together.
        label: Label of the axis of the positions. Defaults to `"epoch"`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes. For standard deviations, call `ax.set_xscale("log")`.

    Example:

    ```python
    report = keras_bdl.diagnostics.gradient_variance(
        net, (x, y), samples=4
    )
    keras_bdl.plots.gradient_variance({"mean-field": {0: report}})
    ```
    """
    check_choice("of", of, ("means", "rhos"))
    curves = {
        name: _curve(name, found, of, layer)
        for name, found in _checked(reports).items()
    }
    ax = open_axes(ax)
    for name, style in method_styles(curves).items():
        x, variance, error = curves[name]
        ax.plot(x, variance, label=name, markersize=4, linewidth=1.6, **style)
        # The logarithmic axis needs positive values.
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


def _checked(reports: Any) -> dict[str, dict]:
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
                f"`reports[{name!r}]` must be a dict from positions to reports "
                "of `keras_bdl.diagnostics.gradient_variance`, with at least "
                f"one. Received: {found!r}"
            )
    return reports


def _curve(
    name: str, reports: dict, of: str, layer: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
                f"of `reports[{name!r}]`. "
                f"{did_you_mean(layer, report.layers)}"
                f"Received: layer={layer!r}"
            )
    variance, error = (
        np.array([one[key] for one in numbers], "float64")
        for key in ("variance", "variance_error")
    )
    variance[~((variance > 0) & np.isfinite(variance))] = np.nan
    error = np.where(np.isfinite(error), error, 0.0)
    return np.array(sorted(reports), "float64"), variance, error
