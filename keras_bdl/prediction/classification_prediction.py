"""Prediction over a finite set of classes."""

import numpy as np

from keras_bdl.data.checked_inputs import probabilities as checked
from keras_bdl.prediction.prediction import Prediction


class ClassificationPrediction(Prediction):
    """Class probabilities averaged over posterior draws, and their spread.

    With `p_s` the probabilities of draw `s` and H the entropy in nats,

        mean = 1/S sum_s p_s                                              (1)
        entropy = H(mean)               total uncertainty                 (2)
        expected_entropy = 1/S sum_s H(p_s)   aleatoric part              (3)
        mutual_information = (2) - (3)        epistemic part              (4)

    A Bernoulli output counts as two classes.

    Args:
        log_mean: Logarithm of (1), classes on the last axis.
        expected_entropy: (3), without the class axis. Defaults to `None`,
            the entropy of a single draw.
        stddev: Standard deviation of `p_s` over the draws, with the shape of
            `log_mean`. Defaults to `None`, zero: a single draw.
        votes: How many draws give each class the highest probability, with
            the shape of `log_mean`. Defaults to `None`: a single draw.
        num_samples: S. Defaults to `1`.
        y: Labels found in the data, integers without the class axis or
            one-hot. Defaults to `None`.
        samples: Every `p_s`, draws on the first axis. Defaults to `None`.
    """

    task = "classification"

    def __init__(
        self,
        log_mean,
        expected_entropy=None,
        stddev=None,
        votes=None,
        num_samples: int = 1,
        y=None,
        samples=None,
    ):
        super().__init__(num_samples, y, samples)
        self.log_mean = np.asarray(log_mean)
        if expected_entropy is None:
            expected_entropy = self.entropy
        self.expected_entropy = np.asarray(expected_entropy)
        if stddev is None:
            stddev = np.zeros_like(self.log_mean)
        self.stddev = np.asarray(stddev)
        if votes is None:
            votes = np.arange(self.num_classes) == self.labels[..., None]
        self.votes = np.asarray(votes)

    @classmethod
    def from_probabilities(cls, probabilities, **kwargs):
        """Wraps the probabilities of any model or library.

        Args:
            probabilities: (1), classes on the last axis.
            **kwargs: The other arguments of the class.
        """
        probabilities = checked("probabilities", probabilities)
        with np.errstate(divide="ignore"):
            return cls(np.log(probabilities), **kwargs)

    @property
    def num_classes(self):
        """Size of the class axis."""
        return self.log_mean.shape[-1]

    @property
    def mean(self):
        """(1), the predictive probabilities."""
        return np.exp(self.log_mean)

    @property
    def labels(self):
        """The most probable class."""
        return self.log_mean.argmax(-1)

    @property
    def confidence(self):
        """The probability of the most probable class."""
        return np.exp(self.log_mean.max(-1))

    @property
    def entropy(self):
        """(2)."""
        # A class of probability 0 adds 0 and not 0 * log 0.
        finite = np.maximum(self.log_mean, np.finfo("float32").min)
        return -np.sum(self.mean * finite, axis=-1)

    @property
    def mutual_information(self):
        """(4), cut at 0 where rounding makes it negative."""
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    @property
    def variation_ratio(self):
        """Share of the draws that do not vote for the most voted class."""
        return 1.0 - self.votes.max(-1) / self.num_samples
