"""What is left when the most uncertain inputs are handed to an expert.

The inputs that stay are a share `1 - fraction` of all, exactly: where the
border runs through a group of equally uncertain inputs, each of the group
stays with the same partial weight, which is the mean over all ways to break
the tie.
"""

import numbers as number_types

import numpy as np

from keras_bdl.data.checked_inputs import numbers
from keras_bdl.evaluation.ranking import auroc

FRACTIONS = (0.0, 0.1, 0.2, 0.3)
MEASURES = ("mutual_information", "entropy", "max_probability")


def referral_accuracy(uncertainty, correct, fractions=FRACTIONS) -> np.ndarray:
    """Returns the accuracy on the inputs that stay.

    Args:
        uncertainty: Uncertainty of each input; the highest are referred.
        correct: Whether each input was classified right.
        fractions: Shares of the inputs that are referred, from 0 to below 1.
            Defaults to `(0.0, 0.1, 0.2, 0.3)`.

    Returns:
        An array, one accuracy for each fraction.
    """
    correct = numbers("correct", correct).ravel()
    return np.array(
        [
            np.average(correct, weights=kept_weights(uncertainty, fraction))
            for fraction in checked_fractions(fractions)
        ]
    )


def referral_auroc(uncertainty, score, y, fractions=FRACTIONS) -> np.ndarray:
    """Returns the AUROC of a binary problem on the inputs that stay.

    Args:
        uncertainty: Uncertainty of each input; the highest are referred.
        score: Probability of class 1.
        y: Labels, 0 or 1.
        fractions: Shares of the inputs that are referred, from 0 to below 1.
            Defaults to `(0.0, 0.1, 0.2, 0.3)`.

    Returns:
        An array, one area for each fraction; NaN where one class is left.
    """
    score, positive = np.ravel(score), np.ravel(y) == 1
    areas = []
    for fraction in checked_fractions(fractions):
        weights = kept_weights(uncertainty, fraction)
        areas.append(
            auroc(
                score[positive],
                score[~positive],
                weights[positive],
                weights[~positive],
            )
        )
    return np.array(areas)


def checked_fractions(fractions) -> list:
    """Returns the shares as a list, each from 0 to below 1."""
    fractions = list(fractions) if np.iterable(fractions) else [fractions]
    for fraction in fractions:
        if not isinstance(fraction, number_types.Real) or not 0 <= fraction < 1:
            raise ValueError(
                "`fractions` must hold numbers from 0 to below 1, so that "
                f"something is left to score. Received: {fraction!r} among "
                "`fractions`"
            )
    return fractions


def kept_weights(uncertainty, fraction: float) -> np.ndarray:
    """Returns the weight, 0 to 1, with which each input stays.

    Args:
        uncertainty: Uncertainty of each input.
        fraction: Share of the inputs that is referred, from 0 to below 1.
    """
    uncertainty = numbers("uncertainty", uncertainty).ravel()
    _, place, count = np.unique(
        uncertainty, return_inverse=True, return_counts=True
    )
    before = np.cumsum(count) - count
    room = (1 - fraction) * uncertainty.size - before
    return np.clip(room / count, 0.0, 1.0)[place]


def uncertainty_of(prediction, measure: str = "mutual_information"):
    """Returns the measure that was used, and its value for each input.

    Args:
        prediction: A `ClassificationPrediction`.
        measure: `"mutual_information"`, which a prediction of a single draw
            does not have: its entropy is used then; `"entropy"` or
            `"max_probability"`. Defaults to `"mutual_information"`.
    """
    if measure not in MEASURES:
        raise ValueError(
            f"`uncertainty` must be one of {MEASURES}. "
            f"Received: uncertainty={measure!r}"
        )
    if measure == "mutual_information" and prediction.num_samples == 1:
        measure = "entropy"
    if measure == "max_probability":
        # The logarithm tells confidences apart that round to 1.
        return measure, -prediction.log_mean.max(-1).ravel()
    return measure, getattr(prediction, measure).ravel()
