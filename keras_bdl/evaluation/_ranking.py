"""Scores of how well positive examples rank above negative examples.

A pair of a positive and a negative example with equal scores counts as half
correct. Examples with equal scores lie on the same side of every threshold. If
one of the two sets is empty, the results are NaN.
"""

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import numbers


def auroc(
    positive: ArrayLike,
    negative: ArrayLike,
    *,
    positive_weights: ArrayLike | None = None,
    negative_weights: ArrayLike | None = None,
) -> float:
    """Returns the area under the receiver operating characteristic.

    The area is the probability that a positive example has a higher score
    than a negative one.

    Args:
        positive: Scores of the examples that should score high.
        negative: Scores of the examples that should score low.
        positive_weights: Weight of each positive. Defaults to `None`, ones.
        negative_weights: Weight of each negative. Defaults to `None`, ones.

    Example:

    ```python
    known, unknown = prediction.entropy[:32], prediction.entropy[32:]
    keras_bdl.evaluation.auroc(unknown, known)
    ```
    """
    hits, alarms = _sweep(
        positive, negative, positive_weights, negative_weights
    )
    if not hits[-1] or not alarms[-1]:
        return np.nan
    heights = (hits[1:] + hits[:-1]) / 2
    area = np.sum(np.diff(alarms) * heights)
    return float(area / (hits[-1] * alarms[-1]))


def average_precision(positive: ArrayLike, negative: ArrayLike) -> float:
    """Returns the area under the precision-recall curve, as a sum of steps.

        sum_t (recall_t - recall_(t-1)) precision_t                       (1)

    The sum is over the distinct scores t, from high to low. Unlike `auroc`, the
    result depends on the ratio of positives to negatives.

    Args:
        positive: Scores of the examples that should score high.
        negative: Scores of the examples that should score low.

    Example:

    ```python
    known, unknown = prediction.entropy[:32], prediction.entropy[32:]
    keras_bdl.evaluation.average_precision(unknown, known)
    ```
    """
    hits, alarms = _sweep(positive, negative)
    if not hits[-1] or not alarms[-1]:
        return np.nan
    precision = hits[1:] / (hits[1:] + alarms[1:])
    return float(np.sum(np.diff(hits) * precision) / hits[-1])  # (1)


def fpr_at_tpr(
    positive: ArrayLike, negative: ArrayLike, *, tpr: float = 0.95
) -> float:
    """Returns the false positive rate at a given true positive rate.

    Torch-uncertainty uses the threshold with the rate nearest to `tpr`, which
    may be below it. The results are equal if a threshold has exactly this rate.

    Args:
        positive: Scores of the examples that should score high.
        negative: Scores of the examples that should score low.
        tpr: Smallest fraction of the positives at or above the threshold. The
            function uses the highest threshold with at least this fraction.
            Defaults to `0.95`.

    Example:

    ```python
    known, unknown = prediction.entropy[:32], prediction.entropy[32:]
    keras_bdl.evaluation.fpr_at_tpr(unknown, known, tpr=0.95)
    ```
    """
    check_number("tpr", tpr, above=0.0, at_most=1.0)
    hits, alarms = _sweep(positive, negative)
    if not hits[-1] or not alarms[-1]:
        return np.nan
    # With the slack, 19 of 20 is at least 0.95 in spite of rounding.
    first = np.argmax(hits >= hits[-1] * (tpr - 1e-12))
    return float(alarms[first] / alarms[-1])


def _sweep(positive, negative, positive_weights=None, negative_weights=None):
    """Returns the positive and the negative weight above each threshold.

    Entry 0 of both arrays is 0. Entry k is the total weight of the scores at or
    above the k-th highest of all different scores.
    """
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
