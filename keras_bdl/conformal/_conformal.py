"""Base class of conformal methods with a guaranteed coverage."""

import abc
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import how_to_predict
from keras_bdl.conformal._cutoff import Cutoff
from keras_bdl.conformal._saved_method import SavedMethod
from keras_bdl.prediction import Prediction


class Conformal(SavedMethod):
    """Base of methods that turn predictions into sets of a known coverage.

    A method scores how badly a target fits a prediction. A set holds every
    target whose score is at most a cutoff, an order statistic of the scores
    of calibration data. The network is not trained again.

    The guarantee needs calibration data and new data that are exchangeable,
    for example drawn independently from one source, and calibration data that
    were not used in training. A new set then contains its target with
    probability of at least `coverage`. Without equal scores, the coverage
    given the calibration data is one draw of Beta(k, n + 1 - k), with n the
    number of scores and k = ceil((n + 1) * coverage); with equal scores it is
    larger. With a cutoff for each class or target, this holds for each of
    them.

    Attributes:
        coverage: The coverage given to `fit`, or `None` before.
        cutoff: The cutoff found by `fit`, or `None` before.
    """

    coverage: float | None = None
    cutoff: Cutoff | None = None

    @abc.abstractmethod
    def fit(
        self,
        prediction: Any,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.9,
    ) -> Self:
        """Finds the cutoff for a coverage.

        Args:
            prediction: Prediction for data that were not used in training.
            y: Their labels or targets. Defaults to `None`, those that the
                prediction found in its data.
            coverage: Share of new targets that the sets must contain, between
                0 and 1. Defaults to `0.9`.

        Returns:
            This object.
        """

    @abc.abstractmethod
    def __call__(self, prediction: Any) -> Any:
        """Returns the sets of a prediction.

        Args:
            prediction: A prediction of the model that `fit` received.
        """

    @abc.abstractmethod
    def scores(
        self,
        prediction: Any,
        y: ArrayLike | None = None,
        *,
        first_row: int = 0,
    ) -> np.ndarray:
        """Returns how badly each target fits its prediction.

        The score is NaN where a target does not count: in padding, or for a
        label that the loss ignores.

        Args:
            prediction: A prediction.
            y: Labels or targets. Defaults to `None`, those in the prediction.
            first_row: Number of rows before this prediction. Defaults to `0`.
        """

    @abc.abstractmethod
    def sets_at(
        self,
        prediction: Any,
        cutoffs: np.ndarray,
        *,
        first_row: int = 0,
        owner: Any = None,
    ) -> Any:
        """Returns the sets with a given cutoff for each row.

        Args:
            prediction: A prediction.
            cutoffs: Largest score in the set of each row.
            first_row: Number of rows before this prediction. Defaults to `0`.
            owner: The object whose name reports show. Defaults to `None`, this
                object.
        """

    def coverage_law(self) -> Any:
        """Returns the law of the coverage, given the calibration data.

        With n calibration scores without ties, the probability that a new set
        contains its target is one draw of Beta(k, n + 1 - k), where
        k = ceil((n + 1) * coverage). Another calibration set is another draw.

        Returns:
            A frozen distribution of `scipy.stats`, with one entry for each
            class or target that has a cutoff of its own. The coverage is 1
            where the cutoff is infinite, and the law then has NaN parameters.
        """
        import scipy.stats

        cutoff = self.fitted_cutoff()
        return scipy.stats.beta(cutoff.ranks, cutoff.counts + 1 - cutoff.ranks)

    def fitted_cutoff(self) -> Cutoff:
        """Returns the cutoff, or raises an error before `fit`."""
        if self.cutoff is None:
            raise RuntimeError(
                f"`{type(self).__name__}` is not fitted yet. Call "
                "`fit(prediction, y)` with held-out data. Received: no cutoff"
            )
        return self.cutoff

    def _get_fitted(self):
        cutoff = self.fitted_cutoff()
        return {"coverage": self.coverage, "cutoff": cutoff.get_state()}

    def _set_fitted(self, fitted):
        self.coverage = fitted["coverage"]
        self.cutoff = Cutoff(**fitted["cutoff"])


def counted_scores(scores: np.ndarray) -> np.ndarray:
    """Returns the scores of the targets that count.

    Args:
        scores: Scores, NaN where a target does not count.
    """
    return scores[~np.isnan(scores)]


def check_coverage(coverage: Any) -> float:
    """Returns a coverage, or raises an error.

    Args:
        coverage: The argument.
    """
    return float(check_number("coverage", coverage, above=0.0, below=1.0))


def check_task(name: str, prediction: Prediction, task: str) -> None:
    """Raises an error unless a value is a prediction of the task.

    Args:
        name: Name of the argument.
        prediction: The argument.
        task: `"classification"` or `"regression"`.
    """
    if getattr(prediction, "task", None) != task:
        raise ValueError(
            f"`{name}` must be a `{task.capitalize()}Prediction` for one model "
            "output, from `keras_bdl.predict`. "
            f"{how_to_predict(prediction)}"
            f"Received: {type(prediction).__name__}"
        )
