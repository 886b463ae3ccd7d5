"""Scores after the most uncertain inputs are referred to an expert.

Exactly the fraction `1 - fraction` of the inputs remains. If only a part of a
group of equally uncertain inputs can remain, each input of the group gets the
same weight between 0 and 1. The weight is the mean over all ways to choose this
part.
"""

from collections.abc import Sequence

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import numbers
from keras_bdl.evaluation._ranking import auroc
from keras_bdl.prediction import ClassificationPrediction

FRACTIONS = (0.0, 0.1, 0.2, 0.3)
MEASURES = ("mutual_information", "entropy", "max_probability")


def referral_accuracy(
    uncertainty: ArrayLike,
    correct: ArrayLike,
    *,
    fractions: Sequence[float] = FRACTIONS,
) -> np.ndarray:
    """Returns the accuracy on the inputs that are not referred.

    Args:
        uncertainty: Uncertainty of each input. The most uncertain inputs are
            referred.
        correct: Whether each input was classified correctly.
        fractions: Fractions of the inputs that are referred, from 0 to below
            1. Defaults to `(0.0, 0.1, 0.2, 0.3)`.

    Returns:
        An array with one accuracy for each fraction.

    Example:

    ```python
    keras_bdl.evaluation.referral_accuracy(
        prediction.entropy, prediction.predicted_classes == y_test
    )
    ```
    """
    correct = numbers("correct", correct).ravel()
    return np.array(
        [
            np.average(correct, weights=kept_weights(uncertainty, fraction))
            for fraction in checked_fractions(fractions)
        ]
    )


def referral_auroc(
    uncertainty: ArrayLike,
    score: ArrayLike,
    y: ArrayLike,
    *,
    fractions: Sequence[float] = FRACTIONS,
) -> np.ndarray:
    """Returns the AUROC of two classes on the inputs that are not referred.

    Args:
        uncertainty: Uncertainty of each input. The most uncertain inputs are
            referred.
        score: Probability of class 1.
        y: Labels, 0 or 1.
        fractions: Fractions of the inputs that are referred, from 0 to below
            1. Defaults to `(0.0, 0.1, 0.2, 0.3)`.

    Returns:
        An array with one area for each fraction, NaN if only one class
        remains.

    Example:

    ```python
    keras_bdl.evaluation.referral_auroc(
        prediction.entropy, prediction.mean[:, 1], y_test
    )
    ```
    """
    score, positive = np.ravel(score), np.ravel(y) == 1
    areas = []
    for fraction in checked_fractions(fractions):
        weights = kept_weights(uncertainty, fraction)
        areas.append(
            auroc(
                score[positive],
                score[~positive],
                positive_weights=weights[positive],
                negative_weights=weights[~positive],
            )
        )
    return np.array(areas)


def checked_fractions(fractions: Sequence[float] | float) -> list[float]:
    """Returns the fractions as a list, each from 0 to below 1.

    Args:
        fractions: The argument.
    """
    checked = list(fractions) if np.iterable(fractions) else [fractions]
    for i, fraction in enumerate(checked):
        check_number(f"fractions[{i}]", fraction, at_least=0.0, below=1.0)
    return checked


def kept_weights(uncertainty: ArrayLike, fraction: float) -> np.ndarray:
    """Returns one weight for each input: 0 if referred, 1 if kept.

    Inputs with equal uncertainty have equal weights. If a part of such inputs
    is referred, the weight of each is the fraction of the inputs that is kept.

    Args:
        uncertainty: Uncertainty of each input.
        fraction: Fraction of the inputs that is referred, from 0 to below 1.
    """
    uncertainty = numbers("uncertainty", uncertainty).ravel()
    _, place, count = np.unique(
        uncertainty, return_inverse=True, return_counts=True
    )
    before = np.cumsum(count) - count
    room = (1 - fraction) * uncertainty.size - before
    return np.clip(room / count, 0.0, 1.0)[place]


def uncertainty_of(
    prediction: ClassificationPrediction, measure: str = "mutual_information"
) -> tuple[str, np.ndarray]:
    """Returns the name of the measure used, and its value for each input.

    Args:
        prediction: A `ClassificationPrediction`.
        measure: `"mutual_information"`, `"entropy"` or `"max_probability"`.
            A prediction with a single sample has no mutual information, and
            the function uses the entropy. Defaults to `"mutual_information"`.

    Example:

    ```python
    name, values = keras_bdl.evaluation.uncertainty_of(prediction, "entropy")
    ```
    """
    check_choice("uncertainty", measure, MEASURES)
    if measure == "mutual_information" and prediction.num_samples == 1:
        measure = "entropy"
    if measure == "max_probability":
        # Logarithms differ even between confidences that round to 1.
        return measure, -prediction.log_mean.max(-1).ravel()
    return measure, getattr(prediction, measure).ravel()
