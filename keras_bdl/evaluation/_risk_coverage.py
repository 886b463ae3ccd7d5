"""Area under the curve of the error rate against the inputs that remain."""

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import numbers


def aurc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Returns the area under the risk-coverage curve; low is good.

    The area is the mean error rate over all shares of inputs that the model
    may answer: one number for the whole referral curve. The model answers the
    k least uncertain of n inputs, with the error rate

        r(k) = 1/k sum_(i=1)^k [input i is wrong]                         (1)

    The area uses trapezoids between the coverages 1/n and 1, and is divided
    by the length of this interval:

        AURC = 1/(n-1) sum_(k=1)^(n-1) (r(k) + r(k+1)) / 2                (2)

    Inputs of equal uncertainty get the mean of (1) over all their orders.

    Args:
        uncertainty: Uncertainty of each input. For the confidence, pass
            `-confidence`.
        correct: Whether each input was classified correctly.

    Returns:
        A number from 0 to 1, NaN for a single input.

    Example:

    ```python
    keras_bdl.evaluation.aurc(
        prediction.entropy, prediction.predicted_classes == y_test
    )
    ```

    Reference:
        - [Geifman and El-Yaniv, 2017](https://arxiv.org/abs/1705.08500)
    """
    return _area(_ordered_errors(uncertainty, correct))


def excess_aurc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Returns `aurc` minus the area of the best possible order; low is good.

    The best order has all correct inputs before all wrong ones. Use the
    excess to compare uncertainties of models with different accuracies: a
    perfect ranking gives 0 for every accuracy.

    Args:
        uncertainty: Uncertainty of each input. For the confidence, pass
            `-confidence`.
        correct: Whether each input was classified correctly.

    Returns:
        A number from 0 to 1, NaN for a single input.

    Example:

    ```python
    correct = prediction.predicted_classes == y_test
    keras_bdl.evaluation.excess_aurc(prediction.entropy, correct)
    ```

    Reference:
        - [Geifman et al., 2019](https://arxiv.org/abs/1805.08206), eq. 3
    """
    errors = _ordered_errors(uncertainty, correct)
    correct = numbers("correct", correct).ravel()
    return _area(errors) - _area(np.sort(1.0 - correct))


def _ordered_errors(uncertainty, correct):
    """Returns the errors by rising uncertainty, averaged over equal ones."""
    uncertainty = numbers("uncertainty", uncertainty).ravel()
    correct = numbers("correct", correct).ravel()
    if uncertainty.shape != correct.shape:
        raise ValueError(
            "`correct` must hold one value for each uncertainty. Received: "
            f"{uncertainty.size} uncertainties and {correct.size} values"
        )
    _, place, count = np.unique(
        uncertainty, return_inverse=True, return_counts=True
    )
    # Averaging the errors averages (1), which is linear in them.
    return np.repeat(np.bincount(place, 1.0 - correct) / count, count)


def _area(errors):
    if errors.size < 2:
        return np.nan
    risk = np.cumsum(errors) / np.arange(1, errors.size + 1)  # (1)
    return float(np.mean((risk[1:] + risk[:-1]) / 2))  # (2)


def aurc_of_examples(uncertainty: ArrayLike, correct: ArrayLike) -> np.ndarray:
    """Returns one number for each input, whose mean is `aurc`.

    The mean over resampled inputs is the area of these inputs, up to terms of
    second order: a number is `aurc` plus the influence of an input, which is
    one more error and one more place before all inputs that are more
    uncertain. With the weight `w_k` of r(k) in (2) of `aurc`, an input of rank
    j has

        n e_j sum_(k>=j) w_k / k - sum_(i>=j) e_i / i + mean error          (1)

    Args:
        uncertainty: Uncertainty of each input.
        correct: Whether each input was classified correctly.
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
    return count * wrong * own[place] - later[place] + errors.mean()  # (1)


def _sums_from(values):
    return np.cumsum(values[::-1])[::-1]
