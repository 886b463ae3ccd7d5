"""Base class of the results of `keras_bdl.predict`."""

from typing import ClassVar

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._inherited_arguments import InheritedArguments


class Prediction(InheritedArguments):
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
    def _shape(self):
        return np.shape(self.mean)

    @property
    def _shape_of_labels(self):
        return self._shape

    def __len__(self) -> int:
        return self._shape[0]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self._shape}, "
            f"num_samples={self.num_samples})"
        )


def aligned_mask(mask: ArrayLike | None, shape: tuple) -> np.ndarray | None:
    """Returns a mask in the shape of the labels or targets, or `None`.

    Args:
        mask: Argument of `Prediction`.
        shape: Shape of the labels or targets.
    """
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
