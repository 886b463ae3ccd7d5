"""Calibration of the probability of every class."""

from keras_bdl.aliases import ArrayLike
from keras_bdl.arguments import check_count
from keras_bdl.data.checked_inputs import as_array
from keras_bdl.data.checked_inputs import class_labels
from keras_bdl.data.checked_inputs import number_blocks
from keras_bdl.evaluation.class_bins import ClassBins


def classwise_calibration_error(
    probabilities: ArrayLike, y: ArrayLike, *, num_bins: int = 20
) -> float:
    """Returns the calibration error of each class, averaged over the classes.

    `expected_calibration_error` tests the highest probability alone. Use this
    function if all probabilities of an input matter. For each class, the
    inputs are in bins of equal width by the probability of the class. With
    `n_kb` inputs in bin b of class k, and K classes,

        error = 1/K sum_k sum_b n_kb/n
            |mean probability of k in b - frequency of k in b|           (1)

    Most probabilities of many classes are close to 0, so the error shrinks
    with the number of classes. Compare models on the same classes.

    Args:
        probabilities: One row per input.
        y: Integer labels or one-hot rows.
        num_bins: Number of bins for each class. Defaults to `20`.

    Example:

    ```python
    keras_bdl.evaluation.classwise_calibration_error(prediction.mean, y_test)
    ```

    Reference:
        - [Kull et al., 2019](https://arxiv.org/abs/1910.12656), eq. 3
    """
    check_count("num_bins", num_bins)
    probs = as_array("probabilities", probabilities)
    y = class_labels(y, probs.shape)
    bins = ClassBins(probs.shape[-1], num_bins)
    for rows, p in number_blocks("probabilities", probs):
        bins.add(p, y[rows])
    return float(bins.calibration_errors().mean())  # (1)
