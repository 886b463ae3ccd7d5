"""How well a score ranks inputs: positives above negatives, wrong ones last.

Equal scores are never put in an arbitrary order. A pair of a positive and a
negative example with equal scores counts as half correct. If only a part of a
group of equally uncertain inputs is referred to an expert, each input of the
group gets the same weight between 0 and 1, the mean over all ways to choose
this part.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import numbers
from keras_bdl.prediction import ClassificationPrediction

FRACTIONS = (0.0, 0.1, 0.2, 0.3)
MEASURES = ("mutual_information", "entropy", "max_probability")


def uncertainty_of(
    prediction: ClassificationPrediction, measure: str
) -> tuple[str, np.ndarray]:
    """Returns the name of the measure used, and its value for each input.

    A single sample has no mutual information; the measure is the entropy then.
    """
    check_choice("uncertainty", measure, MEASURES)
    if measure == "mutual_information" and prediction.num_samples == 1:
        measure = "entropy"
    if measure == "max_probability":
        # Logarithms differ even between confidences that round to 1.
        return measure, -prediction.log_mean.max(-1).ravel()
    return measure, getattr(prediction, measure).ravel()


def auroc(
    positive: ArrayLike,
    negative: ArrayLike,
    *,
    positive_weights: ArrayLike | None = None,
    negative_weights: ArrayLike | None = None,
) -> float:
    """Returns the probability that a positive scores higher than a negative.

    This and the next two functions return NaN if one of the sets is empty.
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

    sum_t (recall_t - recall_(t-1)) precision_t                           (1)

    over the distinct scores t, from high to low.
    """
    hits, alarms = _sweep(positive, negative)
    if not hits[-1] or not alarms[-1]:
        return np.nan
    precision = hits[1:] / (hits[1:] + alarms[1:])
    return float(np.sum(np.diff(hits) * precision) / hits[-1])  # (1)


def fpr_at_tpr(
    positive: ArrayLike, negative: ArrayLike, *, tpr: float = 0.95
) -> float:
    """Returns the false positive rate at the highest threshold with `tpr`.

    At least the fraction `tpr` of the positives is at or above the threshold.
    """
    hits, alarms = _sweep(positive, negative)
    if not hits[-1] or not alarms[-1]:
        return np.nan
    # With the slack, 19 of 20 is at least 0.95 in spite of rounding.
    first = np.argmax(hits >= hits[-1] * (tpr - 1e-12))
    return float(alarms[first] / alarms[-1])


def _sweep(
    positive: ArrayLike,
    negative: ArrayLike,
    positive_weights: ArrayLike | None = None,
    negative_weights: ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positive and the negative weight above each threshold.

    Entry 0 of both arrays is 0. Entry k is the total weight of the scores at or
    above the k-th highest of all different scores.
    """
    positive, negative = np.ravel(positive), np.ravel(negative)
    scores = np.concatenate([positive, negative])
    if not scores.size:
        return np.zeros(1), np.zeros(1)
    values, place = np.unique(numbers("scores", scores), return_inverse=True)

    def at_or_above(places: np.ndarray, weights: Any) -> np.ndarray:
        counts = np.bincount(places, weights, minlength=len(values))
        return np.concatenate([[0.0], counts[::-1].cumsum()])

    split = len(positive)
    hits = at_or_above(place[:split], positive_weights)
    alarms = at_or_above(place[split:], negative_weights)
    return hits, alarms


def referral_accuracy(
    uncertainty: ArrayLike,
    correct: ArrayLike,
    *,
    fractions: Sequence[float] | np.ndarray,
) -> list[float]:
    """Returns the accuracy of what remains, for each referred fraction."""
    correct = numbers("correct", correct).ravel()
    return [
        float(np.average(correct, weights=kept_weights(uncertainty, fraction)))
        for fraction in fractions
    ]


def referral_auroc(
    uncertainty: ArrayLike,
    score: ArrayLike,
    y: ArrayLike,
    *,
    fractions: Sequence[float] | np.ndarray,
) -> list[float]:
    """Returns the AUROC of two classes of what remains, for each fraction.

    `score` is the probability of class 1. The area is NaN if only one class
    remains.
    """
    score, positive = np.ravel(score), np.ravel(y) == 1
    areas = []
    for fraction in fractions:
        weights = kept_weights(uncertainty, fraction)
        areas.append(
            auroc(
                score[positive],
                score[~positive],
                positive_weights=weights[positive],
                negative_weights=weights[~positive],
            )
        )
    return areas


def checked_fractions(fractions: Sequence[float] | float) -> list[float]:
    """Returns the fractions as a list, each from 0 to below 1."""
    checked = list(fractions) if np.iterable(fractions) else [fractions]
    for i, fraction in enumerate(checked):
        check_number(f"fractions[{i}]", fraction, at_least=0.0, below=1.0)
    return checked


def kept_weights(uncertainty: ArrayLike, fraction: float) -> np.ndarray:
    """Returns one weight for each input: 0 if referred, 1 if kept.

    Inputs with equal uncertainty have equal weights. If a part of such inputs
    is referred, the weight of each is the fraction of them that is kept. In
    total, exactly the fraction `1 - fraction` of the inputs is kept.
    """
    uncertainty = numbers("uncertainty", uncertainty).ravel()
    _, place, count = np.unique(
        uncertainty, return_inverse=True, return_counts=True
    )
    before = np.cumsum(count) - count
    room = (1 - fraction) * uncertainty.size - before
    return np.clip(room / count, 0.0, 1.0)[place]


def risk_coverage_areas(
    uncertainty: ArrayLike, correct: ArrayLike
) -> tuple[float, float]:
    """Returns the area under the risk-coverage curve, and its excess.

    The area is the mean error rate over all shares of inputs that the model
    may answer. It answers the k least uncertain of n inputs, with the error
    rate r(k), (1). The area uses trapezoids between the coverages 1/n and 1,
    and is divided by the length of this interval:

        r(k) = 1/k sum_(i=1)^k [input i is wrong]                         (1)
        AURC = 1/(n-1) sum_(k=1)^(n-1) (r(k) + r(k+1)) / 2                (2)

    Inputs of equal uncertainty get the mean of (1) over all their orders. The
    excess is the area minus that of the best order, with all correct inputs
    before all wrong ones. Both are NaN for a single input.

    Reference:
        - [Geifman and El-Yaniv, 2017](https://arxiv.org/abs/1705.08500)
        - [Geifman et al., 2019](https://arxiv.org/abs/1805.08206), eq. 3
    """
    area = _area(_ordered_errors(uncertainty, correct))
    return area, area - _area(np.sort(1.0 - np.ravel(correct)))


def _ordered_errors(uncertainty: ArrayLike, correct: ArrayLike) -> np.ndarray:
    """Returns the errors by rising uncertainty, averaged over equal ones."""
    uncertainty = numbers("uncertainty", uncertainty).ravel()
    correct = numbers("correct", correct).ravel()
    _, place, count = np.unique(
        uncertainty, return_inverse=True, return_counts=True
    )
    # Averaging the errors averages (1), which is linear in them.
    return np.repeat(np.bincount(place, 1.0 - correct) / count, count)


def _area(errors: np.ndarray) -> float:
    if errors.size < 2:
        return np.nan
    risk = np.cumsum(errors) / np.arange(1, errors.size + 1)  # (1)
    return float(np.mean((risk[1:] + risk[:-1]) / 2))  # (2)


def aurc_of_examples(uncertainty: ArrayLike, correct: ArrayLike) -> np.ndarray:
    """Returns one number for each input, whose mean is the area (2).

    The mean over resampled inputs is the area of these inputs, up to terms of
    second order: a number is the area plus the influence of an input, which is
    one more error and one more place before all inputs that are more
    uncertain. With the weight `w_k` of r(k) in (2), an input of rank j has

        n e_j sum_(k>=j) w_k / k - sum_(i>=j) e_i / i + mean error        (3)
    """
    errors = _ordered_errors(uncertainty, correct)
    count = errors.size
    if count < 2:
        return np.full(count, np.nan)
    places = np.arange(1, count + 1)
    weights = np.full(count, 1 / (count - 1))
    weights[[0, -1]] /= 2
    own = _sums_from(weights / places)
    later = _sums_from(errors / places)
    _, place, group = np.unique(
        np.ravel(uncertainty), return_inverse=True, return_counts=True
    )
    # Inputs of equal uncertainty share their places.
    first = np.repeat(np.arange(len(group)), group)
    own, later = (np.bincount(first, v) / group for v in (own, later))
    wrong = 1.0 - np.ravel(correct)
    return count * wrong * own[place] - later[place] + errors.mean()  # (3)


def _sums_from(values: np.ndarray) -> np.ndarray:
    return np.cumsum(values[::-1])[::-1]
