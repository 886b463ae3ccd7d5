"""Predictions with their uncertainty, which `keras_bdl.predict` returns."""

import copy
import dataclasses
import math
import warnings
from typing import Any
from typing import ClassVar

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl._data._checked_inputs import kept_labels
from keras_bdl._data._checked_inputs import labels_of
from keras_bdl._data._checked_inputs import probabilities as checked
from keras_bdl._data._checked_inputs import row_blocks


class Prediction:
    """Base class of the prediction of one model output.

    `keras_bdl.predict` returns a subclass. Arrays are NumPy arrays with the
    examples on the first axis. `samples` has the posterior samples on the
    first axis and the examples on the second.

    Args:
        num_samples: S, the number of posterior samples in the average.
            Defaults to `1`.
        y: Labels or targets found in the data. Defaults to `None`.
        samples: Output of every sample, samples on the first axis. Defaults
            to `None`.
        standard_error: Monte-Carlo standard error of the mean, in the shape
            of the mean: by how much the mean of other samples would differ.
            Defaults to `None`, NaN: one sample does not tell.
        mask: Whether each entry counts, such as the tokens of a sentence
            without its padding. The axes are the first ones of the mean, and
            an entry that counts is `True`, as in Keras. Defaults to `None`:
            all entries count.

    Attributes:
        task: `"classification"` or `"regression"`.
        mean: The predictive mean.
        mask: Whether each entry counts, for each label or target. `None` if
            all count.
    """

    task: ClassVar[str]
    mean: np.ndarray
    mask: np.ndarray | None

    def __init__(
        self,
        *,
        num_samples: int = 1,
        y: ArrayLike | None = None,
        samples: ArrayLike | None = None,
        standard_error: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ):
        self.num_samples = num_samples
        self.mask = aligned_mask(mask, self._shape_of_labels)
        self._standard_error = standard_error
        self.y = None if y is None else np.asarray(y)
        self._samples = samples

    @property
    def samples(self) -> np.ndarray:
        """Output of every posterior sample, samples on the first axis."""
        if self._samples is None:
            raise ValueError(
                "This prediction holds the average over the samples, not "
                "the samples. Call `keras_bdl.predict(..., "
                "keep_samples=True)`, whose memory grows with `samples`. "
                "Received: a prediction with keep_samples=False"
            )
        return self._samples

    @property
    def standard_error(self) -> np.ndarray:
        """Monte-Carlo standard error of the mean; NaN for one sample."""
        if self._standard_error is None:
            return np.full_like(self.mean, np.nan)
        return np.asarray(self._standard_error)

    @property
    def has_samples(self) -> bool:
        """Whether the output of every posterior sample was kept."""
        return self._samples is not None

    @property
    def _shape(self) -> Any:
        return np.shape(self.mean)

    @property
    def _shape_of_labels(self) -> Any:
        return self._shape

    def __len__(self) -> int:
        return self._shape[0]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self._shape}, "
            f"num_samples={self.num_samples})"
        )


def aligned_mask(mask: ArrayLike | None, shape: tuple) -> np.ndarray | None:
    """Returns a mask in the shape of the labels or targets, or `None`."""
    if mask is None:
        return None
    mask = np.asarray(mask, bool)
    given = mask.shape
    if mask.ndim == len(shape) + 1 and given[-1] == 1:
        mask = mask[..., 0]
    if mask.shape != shape[: mask.ndim]:
        raise ValueError(
            "`mask` must have the first axes of the mean, without an axis of "
            f"classes: {shape} or a part of it. "
            f"Received: mask of shape {given}"
        )
    more = [1] * (len(shape) - mask.ndim)
    return np.broadcast_to(mask.reshape(*mask.shape, *more), shape)


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
        num_samples: As in `Prediction`. Defaults to `1`.
        standard_error: As in `Prediction`. Defaults to `None`.
        mask: As in `Prediction`. Defaults to `None`.

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
        y: ArrayLike | None = None,
        samples: ArrayLike | None = None,
        ignore_class: int | None = None,
        num_samples: int = 1,
        standard_error: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ):
        self.log_mean = np.asarray(log_mean)
        super().__init__(
            num_samples=num_samples,
            y=y,
            samples=samples,
            standard_error=standard_error,
            mask=mask,
        )
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
    def _shape(self) -> Any:
        # Without `mean`, whose memory is that of `log_mean`.
        return self.log_mean.shape

    @property
    def _shape_of_labels(self) -> Any:
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


class RegressionPrediction(Prediction):
    """Predictive mean and variance, averaged over posterior samples.

    `keras_bdl.predict` returns this object for a regression. With `m_s` and
    `v_s` the mean and the noise variance of posterior sample `s`,

        mean = 1/S sum_s m_s                                              (1)
        variance_within = 1/S sum_s v_s            aleatoric part         (2)
        variance_between = 1/S sum_s (m_s - mean)^2    epistemic part     (3)
        variance = (2) + (3)                                              (4)

    Args:
        mean: (1).
        variance_between: (3). Defaults to `None`: zero, as for one sample.
        variance_within: (2). Defaults to `None`: zero. The noise of the
            observations is then unknown, (4) equals (3), and `variance` and
            `stddev` warn about the missing part.
        sample_variances: Every `v_s`, broadcastable to `samples`. Defaults
            to `None`, zero.
        samples: Every `m_s`, samples on the first axis. Defaults to `None`.
        num_samples: As in `Prediction`. Defaults to `1`.
        y: Targets found in the data. Defaults to `None`.
        standard_error: As in `Prediction`. Defaults to `None`.
        mask: As in `Prediction`. Defaults to `None`.

    Attributes:
        noise_is_known: Whether (2) was given. The losses of
            `keras_bdl.likelihoods`, the Poisson loss and the arguments
            `noise_stddev` and `moments` of `keras_bdl.predict` give (2).

    Example:

    ```python
    regressor = keras_bdl.Sequential([keras_bdl.layers.MeanFieldDense(1)])
    regressor.compile("adam", keras_bdl.likelihoods.Gaussian(noise_stddev=0.1))
    prediction = keras_bdl.predict(regressor, x_test, samples=3)
    prediction.mean, prediction.stddev
    ```
    """

    task = "regression"

    def __init__(
        self,
        mean: ArrayLike,
        *,
        variance_between: ArrayLike | None = None,
        variance_within: ArrayLike | None = None,
        sample_variances: ArrayLike | None = None,
        samples: ArrayLike | None = None,
        num_samples: int = 1,
        y: ArrayLike | None = None,
        standard_error: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ):
        self.mean = np.asarray(mean)
        super().__init__(
            num_samples=num_samples,
            y=y,
            samples=samples,
            standard_error=standard_error,
            mask=mask,
        )
        zero = np.zeros_like(self.mean)
        self.noise_is_known = variance_within is not None
        self._warned = self.noise_is_known
        self.variance_between = (
            zero if variance_between is None else np.asarray(variance_between)
        )
        self.variance_within = (
            zero if variance_within is None else np.asarray(variance_within)
        )
        self.sample_variances = sample_variances

    def rescaled(
        self, scale: ArrayLike, offset: ArrayLike = 0.0
    ) -> "RegressionPrediction":
        """Returns the prediction of `offset + scale * target`.

        Use this method after training on the standardised targets
        `(y - y.mean()) / y.std()`: `prediction.rescaled(y.std(), y.mean())`
        is in the units of the data.

        Args:
            scale: A positive number, or one for each target.
            offset: A number, or one for each target. Defaults to `0.0`.
        """
        scale = np.asarray(scale, "float64")
        offset = np.asarray(offset, "float64")
        if not (np.all(scale > 0) and np.all(np.isfinite(scale))):
            raise ValueError(
                "`scale` must be positive and finite, such as the standard "
                f"deviation of the targets. Received: scale={scale}"
            )
        known = self.sample_variances is not None
        return RegressionPrediction(
            offset + scale * self.mean,
            variance_between=scale**2 * self.variance_between,
            variance_within=scale**2 * self.variance_within
            if self.noise_is_known
            else None,
            num_samples=self.num_samples,
            y=None if self.y is None else offset + scale * self.y,
            samples=offset + scale * self.samples if self.has_samples else None,
            sample_variances=scale**2 * self.sample_variances
            if known
            else None,
            standard_error=scale * self.standard_error,
            mask=self.mask,
        )

    @property
    def variance(self) -> np.ndarray:
        """Predictive variance, (4)."""
        self._warn_of_unknown_noise("variance")
        return self.known_variance

    @property
    def stddev(self) -> np.ndarray:
        """Square root of (4)."""
        self._warn_of_unknown_noise("stddev")
        return np.sqrt(self.known_variance)

    @property
    def known_variance(self) -> np.ndarray:
        """The part of (4) that is known, without a warning."""
        return self.variance_within + self.variance_between

    def _warn_of_unknown_noise(self, name: Any) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"`{name}` leaves out the noise of the targets, because the loss "
            "of the model does not say how large the noise is. Pass "
            "`noise_stddev` to `keras_bdl.predict`, or compile the model with "
            "`keras_bdl.likelihoods.Gaussian`. Received: a prediction with "
            "unknown noise",
            stacklevel=3,
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
    """Returns the entries that count, with their labels."""
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
    """Returns the entries that the mask of a prediction counts."""
    check_classification(name, prediction)
    return chosen_entries(prediction, _kept(prediction), name=name)


def chosen_entries(
    prediction: ClassificationPrediction,
    kept: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    name: str = "prediction",
) -> CountedEntries:
    """Returns some entries of a prediction."""
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
    """Returns a prediction whose mask leaves out other entries."""
    changed = copy.copy(prediction)
    changed.mask = kept.reshape(prediction.log_mean.shape[:-1])
    return changed


def _kept(prediction: Any) -> Any:
    if prediction.mask is None:
        return np.ones(math.prod(prediction.log_mean.shape[:-1]), bool)
    return prediction.mask.ravel()
