"""Class probabilities and their uncertainty."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import probabilities as checked
from keras_bdl._data._row_blocks import row_blocks
from keras_bdl.prediction._prediction import Prediction
from keras_bdl.prediction._prediction import aligned_mask


class ClassificationPrediction(Prediction):
    """Class probabilities, averaged over posterior samples, with uncertainty.

    `keras_bdl.predict` returns this object for a classifier. With `p_s` the
    probabilities of posterior sample `s` and H the entropy in nats,

        mean = 1/S sum_s p_s                                              (1)
        entropy = H(mean)               total uncertainty                 (2)
        expected_entropy = 1/S sum_s H(p_s)   aleatoric part              (3)
        mutual_information = (2) - (3)        epistemic part              (4)

    A Bernoulli output counts as two classes.

    Args:
        log_mean: Logarithm of (1), classes on the last axis.
        expected_entropy: (3), without the class axis. Defaults to `None`:
            (2), as for one sample.
        stddev: Standard deviation of `p_s` over the samples, in the shape of
            `log_mean`. Defaults to `None`: zero, as for one sample.
        votes: Number of samples that give each class the highest
            probability, in the shape of `log_mean`. Defaults to `None`: one
            vote, as for one sample.
        y: Labels found in the data, integers without the class axis or
            one-hot. Defaults to `None`.
        samples: Every `p_s`, samples on the first axis. Defaults to `None`.
        ignore_class: Label of entries that do not count, as in
            `keras.losses.SparseCategoricalCrossentropy`. Defaults to `None`:
            no such label.

    Example:

    ```python
    prediction = keras_bdl.predict(model, x_test, posterior)
    unsure = prediction.mutual_information > 0.1
    prediction.predicted_classes[~unsure]
    ```
    """

    task = "classification"

    def __init__(
        self,
        log_mean: ArrayLike,
        *,
        expected_entropy: ArrayLike | None = None,
        stddev: ArrayLike | None = None,
        votes: ArrayLike | None = None,
        ignore_class: int | None = None,
        **kwargs: Any,
    ):
        self.log_mean = np.asarray(log_mean)
        super().__init__(**kwargs)
        self.ignore_class = ignore_class
        if expected_entropy is None:
            expected_entropy = self.entropy
        self.expected_entropy = np.asarray(expected_entropy)
        if stddev is None:
            # One zero in memory, because the array may be as large as the data.
            zero = np.zeros((), self.log_mean.dtype)
            stddev = np.broadcast_to(zero, self.log_mean.shape)
        self.stddev = np.asarray(stddev)
        self._votes = None if votes is None else np.asarray(votes)

    @classmethod
    def from_probabilities(
        cls, probabilities: ArrayLike, **kwargs: Any
    ) -> "ClassificationPrediction":
        """Returns a prediction from probabilities that any library computed.

        Args:
            probabilities: Predictive probabilities, classes on the last axis.
            **kwargs: Further arguments of `ClassificationPrediction`.
        """
        probabilities = as_array("probabilities", probabilities)
        mask = aligned_mask(kwargs.get("mask"), probabilities.shape[:-1])
        if mask is None:
            probabilities = checked("probabilities", probabilities)
        else:
            # Padding may hold anything, and becomes uniform.
            kept = checked("probabilities", probabilities[mask])
            uniform = 1.0 / probabilities.shape[-1]
            probabilities = np.full(probabilities.shape, uniform, kept.dtype)
            probabilities[mask] = kept
        with np.errstate(divide="ignore"):
            return cls(np.log(probabilities), **kwargs)

    @property
    def votes(self) -> np.ndarray:
        """Number of samples that give each class the highest probability."""
        if self._votes is None:
            classes = np.arange(self.num_classes)
            return classes == self.predicted_classes[..., None]
        return self._votes

    @property
    def num_classes(self) -> int:
        """Size of the class axis."""
        return self.log_mean.shape[-1]

    @property
    def _shape(self):
        # Without `mean`, whose memory is that of `log_mean`.
        return self.log_mean.shape

    @property
    def _shape_of_labels(self):
        return self.log_mean.shape[:-1]

    @property
    def mean(self) -> np.ndarray:  # type: ignore[override]  # read-only
        """Predictive probabilities, (1)."""
        return np.exp(self.log_mean)

    @property
    def predicted_classes(self) -> np.ndarray:
        """The most probable class of each example."""
        return self.log_mean.argmax(-1)

    @property
    def variation_ratio(self) -> np.ndarray:
        """Share of the samples that do not vote for the most voted class."""
        return 1.0 - self.votes.max(-1) / self.num_samples

    @property
    def confidence(self) -> np.ndarray:
        """The probability of the most probable class."""
        return np.exp(self.log_mean.max(-1))

    @property
    def entropy(self) -> np.ndarray:
        """Entropy of the predictive probabilities in nats, (2)."""
        rows = self.log_mean.reshape(-1, self.num_classes)
        entropy = np.empty(len(rows), np.result_type(rows, "float16"))
        for block in row_blocks(*rows.shape):
            # A class of probability 0 adds 0 and not 0 * log 0.
            finite = np.maximum(rows[block], np.finfo("float32").min)
            entropy[block] = -np.sum(np.exp(rows[block]) * finite, axis=-1)
        return entropy.reshape(self.log_mean.shape[:-1])

    @property
    def mutual_information(self) -> np.ndarray:
        """Mutual information of label and weights in nats, (4).

        Rounding may make (4) negative; such values become 0.
        """
        return np.maximum(self.entropy - self.expected_entropy, 0.0)
