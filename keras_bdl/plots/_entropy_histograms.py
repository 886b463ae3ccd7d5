"""Histograms of predictive entropies, in and out of distribution."""

from typing import Any

import numpy as np

from keras_bdl._arguments import check_count
from keras_bdl.plots.canvas import COLORS
from keras_bdl.plots.canvas import add_legend
from keras_bdl.plots.canvas import classifications
from keras_bdl.plots.canvas import open_axes
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import counted_entries


def entropy_histograms(
    inside: ClassificationPrediction,
    outside: ClassificationPrediction,
    *,
    num_bins: int = 30,
    ax: Any = None,
    color: str = COLORS[0],
    outside_color: str = COLORS[1],
) -> Any:
    """Draws the entropies of in- and out-of-distribution inputs.

    Use it to see how well the entropy detects unknown inputs. The less the two
    histograms overlap, the better is the detection. Each histogram shows shares
    of its own inputs, in bins of equal width on `[0, log(classes)]`.

    Args:
        inside: `ClassificationPrediction` for in-distribution inputs.
        outside: `ClassificationPrediction` of the same model for
            out-of-distribution inputs.
        num_bins: Number of bins. Defaults to `30`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.
        color: Colour of the in-distribution inputs. Defaults to blue.
        outside_color: Colour of the out-of-distribution inputs. Defaults to
            vermilion.

    Returns:
        The axes.

    Example:

    ```python
    unknown = keras_bdl.predict(model, 5.0 * x, posterior, verbose=0)
    keras_bdl.plots.entropy_histograms(prediction, unknown)
    ```
    """
    classifications({"inside": inside, "outside": outside})
    check_count("num_bins", num_bins)
    if inside.num_classes != outside.num_classes:
        raise ValueError(
            "`outside` must have the classes of `inside`. Received: "
            f"{inside.num_classes} classes inside and "
            f"{outside.num_classes} outside"
        )
    ax = open_axes(ax)
    highest = np.log(inside.num_classes)
    for prediction, name, look, hatch in (
        (inside, "in distribution", color, None),
        (outside, "out of distribution", outside_color, "////"),
    ):
        entropy = counted_entries(prediction).prediction.entropy
        entropy = np.clip(entropy, 0.0, highest)
        ax.hist(
            entropy,
            bins=np.linspace(0.0, highest, num_bins + 1),
            weights=np.full(entropy.size, 100.0 / entropy.size),
            histtype="stepfilled",
            facecolor=(look, 0.35),
            edgecolor=look,
            linewidth=1.4,
            hatch=hatch,
            label=name,
        )
    ax.set_xlim(0.0, highest)
    ax.set_xlabel("predictive entropy (nats)")
    ax.set_ylabel("share of the inputs (%)")
    add_legend(ax)
    return ax
