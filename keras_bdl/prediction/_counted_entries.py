"""The entries of a prediction of classes that count, in rows.

Padding does not count, nor does a label that the loss ignores.
"""

import copy
import dataclasses
import math

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl._data._checked_inputs import kept_labels
from keras_bdl._data._checked_inputs import labels_of
from keras_bdl.prediction._classification_prediction import (
    ClassificationPrediction,
)


@dataclasses.dataclass(frozen=True)
class CountedEntries:
    """The entries of a prediction that count.

    An entry is a row of classes: one for each input, label, token or pixel.

    Attributes:
        prediction: A prediction with one row for each entry that counts.
        y: Integer label of each row. Without labels, the array is empty.
        labels: Integer label of each entry of the whole prediction, 0 where
            it does not count. Without labels, the array is empty.
        kept: Whether each entry of the whole prediction counts.
        example: Number of the example of each row, in rising order.
    """

    prediction: ClassificationPrediction
    y: np.ndarray
    labels: np.ndarray
    kept: np.ndarray
    example: np.ndarray


def labelled_entries(
    prediction: ClassificationPrediction,
    y: ArrayLike | None = None,
    *,
    name: str = "prediction",
) -> CountedEntries:
    """Returns the entries that count, with their labels.

    Args:
        prediction: A `ClassificationPrediction`, which is checked.
        y: Labels, integers or one-hot. Defaults to `None`, those in the
            prediction.
        name: Name of the argument that holds the prediction. Defaults to
            `"prediction"`.
    """
    check_classification(name, prediction)
    labels, kept = kept_labels(
        labels_of(prediction, y),
        prediction.log_mean.shape,
        (prediction.ignore_class,),
        prediction.mask,
    )
    return chosen_entries(prediction, kept, labels, name=name)


def counted_entries(
    prediction: ClassificationPrediction, *, name: str = "prediction"
) -> CountedEntries:
    """Returns the entries that the mask of a prediction counts.

    Args:
        prediction: A `ClassificationPrediction`, which is checked.
        name: Name of the argument that holds the prediction. Defaults to
            `"prediction"`.
    """
    check_classification(name, prediction)
    return chosen_entries(prediction, _kept(prediction), name=name)


def chosen_entries(
    prediction: ClassificationPrediction,
    kept: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    name: str = "prediction",
) -> CountedEntries:
    """Returns some entries of a prediction.

    Args:
        prediction: A `ClassificationPrediction`.
        kept: Whether each entry counts.
        labels: Integer label of each entry. Defaults to `None`, no labels.
        name: Name of the argument that holds the prediction. Defaults to
            `"prediction"`.
    """
    if not kept.any():
        raise ValueError(
            f"`{name}` must have an entry that counts. Received: "
            f"{kept.size} entries, which a mask or `ignore_class` leaves out"
        )
    shape = prediction.log_mean.shape
    labels = np.zeros(0, "int64") if labels is None else labels
    example = np.repeat(
        np.arange(shape[0] if len(shape) > 1 else 1), math.prod(shape[1:-1])
    )
    log_mean = prediction.log_mean.reshape(-1, shape[-1])
    expected = prediction.expected_entropy.reshape(-1)
    y = labels
    if not kept.all():
        log_mean, expected, example = (
            log_mean[kept],
            expected[kept],
            example[kept],
        )
        y = labels[kept] if labels.size else labels
    return CountedEntries(
        prediction=ClassificationPrediction(
            log_mean,
            expected_entropy=expected,
            num_samples=prediction.num_samples,
        ),
        y=y,
        labels=labels,
        kept=kept,
        example=example,
    )


def with_mask(
    prediction: ClassificationPrediction, kept: np.ndarray
) -> ClassificationPrediction:
    """Returns a prediction whose mask leaves out other entries.

    Args:
        prediction: A `ClassificationPrediction`.
        kept: Whether each entry counts.
    """
    changed = copy.copy(prediction)
    changed.mask = kept.reshape(prediction.log_mean.shape[:-1])
    return changed


def _kept(prediction):
    if prediction.mask is None:
        return np.ones(math.prod(prediction.log_mean.shape[:-1]), bool)
    return prediction.mask.ravel()
