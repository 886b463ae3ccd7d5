"""The pictures of the comparison."""

import numpy as np

import keras_bdl as bdl
from comparison.task import SEVERITIES

# As in `keras_bdl.plots.comparison`.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
MARKERS = "osD^v"
GREY = "#BBBBBB"


def highlighted(scores):
    """Returns five names: SGD, and the four best methods under shift."""
    best = [method for method in scores if method != "SGD"][:4]
    return ["SGD", *best] if "SGD" in scores else best


def draw_shift(scores):
    """Draws the NLL and the accuracy against the severity of the shift.

    Args:
        scores: Result of `over_seeds`.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.0), layout="constrained")
    chosen = highlighted(scores)
    for method in [m for m in scores if m not in chosen] + chosen:
        style = {"color": GREY, "linewidth": 0.9, "zorder": 1}
        if method in chosen:
            place = chosen.index(method)
            style = {
                "color": COLORS[place],
                "marker": MARKERS[place],
                "label": method,
                "linewidth": 1.8,
            }
        for ax, measure in zip(axes, ("nll", "accuracy"), strict=True):
            ax.plot((0, *SEVERITIES), _curve(scores[method], measure), **style)
    for ax, name in zip(axes, ("NLL", "accuracy"), strict=True):
        ax.set_xlabel("severity of the shift")
        ax.set_ylabel(name)
        ax.set_xticks((0, *SEVERITIES))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#E6E6E6", linewidth=0.8)
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=5,
        frameon=False,
    )
    return figure


def _curve(found, measure):
    """Returns the mean over seeds and kinds of shift, for each severity."""
    values = [np.mean(found[measure])]
    for severity in SEVERITIES:
        suffix = f"{severity} {measure}"
        kinds = [v for name, v in found.items() if name.endswith(suffix)]
        values.append(np.mean(kinds))
    return values


def draw(folder, scores, shown):
    """Writes the pictures to a folder.

    Args:
        folder: The `StoragePath` of the folder.
        scores: Result of `over_seeds`.
        shown: The `Shown` of the runs.
    """
    chosen = highlighted(scores)
    page = bdl.plots.comparison(
        {method: shown.known[method] for method in chosen},
        shown.labels,
        ood={method: shown.unknown[method] for method in chosen},
        title="SGD and the four best methods under shift, first seed",
    )
    figures = {"shift": draw_shift(scores), "comparison": page}
    for name, figure in figures.items():
        with (folder / f"{name}.png").replaced() as file:
            figure.savefig(file, dpi=150)
