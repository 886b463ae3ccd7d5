"""How well a score ranks one set of examples above another.

Examples of equal score count as tied: each pair of them as half right, and
all of them on the same side of every threshold. Where one of the two sets is
empty the numbers are not defined, and NaN.
"""

import numpy as np

from keras_bdl.data.checked_inputs import numbers


def auroc(
    positive, negative, positive_weights=None, negative_weights=None
) -> float:
    """Returns the area under the receiver operating characteristic.

    It is the probability that a positive example scores above a negative one.

    Args:
        positive: Scores of the examples that should score high.
        negative: Scores of the examples that should score low.
        positive_weights: Weight of each positive. Defaults to `None`, ones.
        negative_weights: Weight of each negative. Defaults to `None`, ones.
    """
    hits, alarms = _sweep(
        positive, negative, positive_weights, negative_weights
    )
    if not hits[-1] or not alarms[-1]:
        return np.nan
    heights = (hits[1:] + hits[:-1]) / 2
    area = np.sum(np.diff(alarms) * heights)
    return float(area / (hits[-1] * alarms[-1]))


def average_precision(positive, negative) -> float:
    """Returns the area under the precision-recall curve, by its steps.

        sum_t (recall_t - recall_(t-1)) precision_t                       (1)

    over the distinct scores t from high to low. Unlike `auroc` it depends on
    how many positives there are for each negative.

    Args:
        positive: Scores of the examples that should score high.
        negative: Scores of the examples that should score low.
    """
    hits, alarms = _sweep(positive, negative)
    if not hits[-1] or not alarms[-1]:
        return np.nan
    precision = hits[1:] / (hits[1:] + alarms[1:])
    return float(np.sum(np.diff(hits) * precision) / hits[-1])  # (1)


def fpr_at_tpr(positive, negative, tpr: float = 0.95) -> float:
    """Returns the false positives that come with a wanted share of positives.

    Args:
        positive: Scores of the examples that should score high.
        negative: Scores of the examples that should score low.
        tpr: Share of the positives that must lie at or above the threshold;
            the highest such threshold is taken. Defaults to `0.95`.
    """
    if not 0 < tpr <= 1:
        raise ValueError(
            f"`tpr` must be above 0 and at most 1. Received: tpr={tpr}"
        )
    hits, alarms = _sweep(positive, negative)
    if not hits[-1] or not alarms[-1]:
        return np.nan
    # The slack keeps 19 of 20 a share of 0.95 after rounding.
    first = np.argmax(hits >= hits[-1] * (tpr - 1e-12))
    return float(alarms[first] / alarms[-1])


def _sweep(positive, negative, positive_weights=None, negative_weights=None):
    """Weights of positives and negatives at or above a falling threshold."""
    positive, negative = np.ravel(positive), np.ravel(negative)
    scores = np.concatenate([positive, negative])
    if not scores.size:
        return np.zeros(1), np.zeros(1)
    values, place = np.unique(numbers("scores", scores), return_inverse=True)

    def at_or_above(places, weights):
        counts = np.bincount(places, weights, minlength=len(values))
        return np.concatenate([[0.0], counts[::-1].cumsum()])

    split = len(positive)
    hits = at_or_above(place[:split], positive_weights)
    alarms = at_or_above(place[split:], negative_weights)
    return hits, alarms
