"""The Brier score and its decomposition."""

from typing import NamedTuple

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import class_labels
from keras_bdl._data._checked_inputs import number_blocks
from keras_bdl.evaluation._class_bins import ClassBins


class BrierDecomposition(NamedTuple):
    """Parts of the Brier score, from `brier_decomposition`.

    Attributes:
        reliability: Equation (1) of `brier_decomposition`; low is good.
        resolution: Equation (2); high is good.
        uncertainty: Equation (3), a property of the labels.
        residual: Equation (4), the error from binning.
    """

    reliability: float
    resolution: float
    uncertainty: float
    residual: float


def brier_score(probabilities: ArrayLike, y: ArrayLike) -> float:
    """Returns the squared error of the probabilities, summed over classes.

    Args:
        probabilities: One row per input.
        y: Integer labels or one-hot rows.

    Returns:
        The mean over the inputs, between 0 and 2.

    Example:

    ```python
    keras_bdl.evaluation.brier_score(prediction.mean, y_test)
    ```
    """
    probs = as_array("probabilities", probabilities)
    y = class_labels(y, probs.shape)
    total = 0.0
    for rows, p in number_blocks("probabilities", probs):
        chosen = np.take_along_axis(p, y[rows, None], axis=-1)
        # |p - e_y|^2 = |p|^2 - 2 p_y + 1 needs no one-hot copy.
        total += np.sum(np.sum(p**2, -1) - 2 * chosen[:, 0] + 1)
    return float(total / len(y))


def brier_decomposition(
    probabilities: ArrayLike, y: ArrayLike, *, num_bins: int = 20
) -> BrierDecomposition:
    """Splits the Brier score into reliability, resolution and uncertainty.

    For each class, the function sorts the inputs into bins `k` of equal width
    by the probability `p_i` of the class; the last bin includes 1.0. The
    indicator `o_i` is 1 if the label is the class, otherwise 0. Let `n_k` be
    the number of inputs in bin k, `p_k` and `o_k` the means of `p_i` and `o_i`
    over the bin, and `o` the frequency of the class. The parts are

        reliability = sum_k n_k/n (p_k - o_k)^2       low is good         (1)
        resolution = sum_k n_k/n (o_k - o)^2          high is good        (2)
        uncertainty = o (1 - o)                       of the data         (3)
        residual = 1/n sum_i (p_i - p_k)^2 - 2 (p_i - p_k)(o_i - o_k)     (4)

    summed over the classes. The four terms satisfy exactly

        Brier score = reliability - resolution + uncertainty + residual   (5)

    The residual (4) comes from different probabilities inside one bin. It is
    zero if all probabilities in a bin are equal.

    Args:
        probabilities: One row per input.
        y: Integer labels or one-hot rows.
        num_bins: Number of bins for each class. Defaults to `20`.

    Example:

    ```python
    parts = keras_bdl.evaluation.brier_decomposition(prediction.mean, y_test)
    parts.reliability
    ```

    Reference:
        - Murphy, 1973, A new vector partition of the probability score;
          Stephenson et al., 2008, for (4)
    """
    check_count("num_bins", num_bins)
    probs = as_array("probabilities", probabilities)
    y = class_labels(y, probs.shape)
    bins = ClassBins(probs.shape[-1], num_bins)
    for rows, p in number_blocks("probabilities", probs):
        bins.add(p, y[rows])
    return BrierDecomposition(*bins.brier_parts())
