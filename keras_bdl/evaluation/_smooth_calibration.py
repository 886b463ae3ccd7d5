"""Calibration error without bins."""

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import numbers

# Number of points at which the confidences lie after rounding.
GRID = 2**13
BISECTIONS = 40


def smooth_calibration_error(
    confidence: ArrayLike, correct: ArrayLike
) -> float:
    """Returns the smooth calibration error, which has no bins to choose.

    A small change of the confidences changes this error only a little. A
    small change may move an input across the edge of a bin and change
    `expected_calibration_error` a lot. With the confidences `f_i`, 1 for
    correct and 0 for wrong inputs as `o_i`, and the Gaussian kernel K of
    standard deviation s, reflected at 0 and 1,

        r_s(t) = 1/n sum_i K_s(t, f_i) (o_i - f_i)                        (1)
        error_s = integral of |r_s(t)| over t from 0 to 1                 (2)

    `error_s` falls as s grows. The result is the error at the one s with

        error_s = s                                                       (3)

    The function rounds the confidences to 8192 points, linearly between two
    neighbours. Time and memory are linear in the number of inputs.

    Args:
        confidence: Highest class probability of each example, from 0 to 1.
        correct: Whether each example was classified correctly.

    Example:

    ```python
    keras_bdl.evaluation.smooth_calibration_error(
        prediction.confidence, prediction.predicted_classes == y_test
    )
    ```

    Reference:
        - [Blasiok and Nakkiran, 2023](https://arxiv.org/abs/2309.12236),
          definition 1.2 and section 3
    """
    confidence = numbers("confidence", confidence).ravel()
    correct = numbers("correct", correct).ravel()
    if confidence.shape != correct.shape:
        raise ValueError(
            "`correct` must hold one value for each confidence. Received: "
            f"{confidence.size} confidences and {correct.size} values"
        )
    # Rounding may lift a probability above 1 by the precision of float16.
    if confidence.min() < 0 or confidence.max() > 1 + 1e-3:
        raise ValueError(
            "`confidence` must be from 0 to 1. Received: confidence from "
            f"{confidence.min():.4g} to {confidence.max():.4g}"
        )
    confidence = np.minimum(confidence, 1.0)
    return _fixed_point(_coefficients(confidence, correct - confidence))


def _coefficients(position, residual):
    """Returns the cosine coefficients of the residuals on the grid."""
    from scipy.fft import dct

    # Point k is at (k + 1/2) / GRID, and each end belongs to its first point.
    place = np.clip(position * GRID - 0.5, 0, GRID - 1)
    low = np.minimum(place.astype(int), GRID - 2)
    share = place - low
    mass = np.bincount(low, residual * (1 - share), GRID)
    mass += np.bincount(low + 1, residual * share, GRID)
    return dct(mass / position.size, type=2)


def _fixed_point(coefficients):
    """Returns the solution of (3)."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _error(coefficients, middle) > middle:
            low = middle
        else:
            high = middle
    return float(high)


def _error(coefficients, stddev):
    """Returns (2)."""
    from scipy.fft import idct

    # The reflected Gaussian is the heat kernel of [0, 1] with closed ends: it
    # multiplies the cosine of frequency k by exp(-(pi k s)^2 / 2).
    decay = np.exp(-((np.pi * np.arange(GRID) * stddev) ** 2) / 2)
    return np.abs(idct(coefficients * decay, type=2)).sum()  # (1), (2)
