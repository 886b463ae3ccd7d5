"""Base of conformal methods: their cutoff, their guarantee and their files."""

import abc
import dataclasses
import fractions
import inspect
import math
import os
from collections.abc import Mapping
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import how_to_predict
from keras_bdl._saving._kinds import SavedByKind
from keras_bdl._saving._state_file import read_state
from keras_bdl.prediction._predictions import Prediction


class SavedMethod(ShowsArguments, SavedByKind, family="a conformal method"):
    """Base of all conformal methods: saves what `fit` found, without pickle.

    A constructor names all its arguments, and stores each as an attribute.
    """

    @abc.abstractmethod
    def __call__(self, prediction: Any) -> Any:
        """Returns the sets of a prediction."""

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument."""
        parameters = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in parameters}

    def get_state(self) -> dict[str, Any]:
        """Returns the content of a saved file as nested dicts and arrays."""
        return {
            "kind": self.kind,
            "config": self.get_config(),
            "fitted": self._get_fitted(),
        }

    @classmethod
    def _arguments(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the constructor arguments of a config."""
        del custom_objects
        return config

    @abc.abstractmethod
    def _get_fitted(self) -> dict[str, Any]:
        """Returns what `fit` found, or raises an error before `fit`."""

    @abc.abstractmethod
    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        """Sets what `_get_fitted` returned."""


def load(
    path: str | os.PathLike, *, custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Returns the fitted conformal method that `save` wrote to a file.

    Args:
        path: The file.
        custom_objects: Your loss functions of `RiskControl` by name. Defaults
            to `None`.

    Example:

    ```python
    conformal = keras_bdl.conformal.LAC().fit(prediction, y)
    conformal.save("sets.bdl")
    sets = keras_bdl.conformal.load("sets.bdl")(prediction)
    ```
    """
    return from_state(read_state(path), custom_objects)


def from_state(
    state: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Returns the fitted method that `get_state` described."""
    cls = SavedMethod.class_of_state(state)
    method = cls(**cls._arguments(state["config"], custom_objects or {}))
    method._set_fitted(state["fitted"])
    return method


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
    cutoff: "Cutoff | None" = None

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
    def scores(
        self, prediction: Any, y: ArrayLike | None = None, *, first_row: int = 0
    ) -> np.ndarray:
        """Returns how badly each target fits its prediction.

        The score is NaN where a target does not count: in padding, or for a
        label that the loss ignores.

        Args:
            prediction: A prediction.
            y: Labels or targets. Defaults to `None`, those in the prediction.
            first_row: Number of rows before this prediction, also those of the
                calibration. Defaults to `0`.
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
            first_row: Number of rows before this prediction, also those of the
                calibration. Defaults to `0`.
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

    def fitted_cutoff(self) -> "Cutoff":
        """Returns the cutoff, or raises an error before `fit`."""
        if self.cutoff is None:
            raise RuntimeError(
                f"`{type(self).__name__}` is not fitted yet. Call "
                "`fit(prediction, y)` with held-out data. Received: no cutoff"
            )
        return self.cutoff

    def _get_fitted(self) -> dict[str, Any]:
        cutoff = self.fitted_cutoff()
        return {"coverage": self.coverage, "cutoff": cutoff.get_state()}

    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        self.coverage = fitted["coverage"]
        self.cutoff = Cutoff(**fitted["cutoff"])


@dataclasses.dataclass(frozen=True)
class Cutoff:
    """The largest score inside a set, from the scores of calibration data.

    With n calibration scores and the level a user asks for,

        k = ceil((n + 1) * level)                                         (1)
        value = the k-th smallest score, infinite if k > n                (2)

    A new score, exchangeable with the others, is at most (2) with probability
    k/(n + 1) if no two scores are equal, otherwise at least so. Equal scores
    are ordered by a second number, the key.

    The arrays have one entry for each group: for each class, for each target,
    or a single one without axes.

    Attributes:
        values: (2).
        keys: Key of the k-th score.
        counts: n.
        ranks: (1).
    """

    values: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    ranks: np.ndarray

    @classmethod
    def of(
        cls, scores: np.ndarray, level: float, keys: np.ndarray | None = None
    ) -> "Cutoff":
        """Returns the cutoff of one group."""
        count = len(scores)
        k = rank(count, level)
        value = key = math.inf
        if k <= count:
            if keys is None:
                value = float(np.partition(scores, k - 1)[k - 1])
            else:
                chosen = np.lexsort((keys, scores))[k - 1]
                value, key = float(scores[chosen]), float(keys[chosen])
        return cls(*map(np.asarray, (value, key, count, k)))

    @classmethod
    def joined(cls, cutoffs: list["Cutoff"], shape: tuple) -> "Cutoff":
        """Returns the cutoffs of several groups as one object."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(
            *(
                np.reshape([getattr(c, name) for c in cutoffs], shape)
                for name in names
            )
        )

    def limits(self, keys: np.ndarray) -> np.ndarray:
        """Returns the largest score inside: a row a key, a column a group."""
        values, own = np.ravel(self.values), np.ravel(self.keys)
        below = np.nextafter(values, -np.inf)
        return np.where(keys[:, None] <= own, values, below)

    @property
    def infinite(self) -> np.ndarray:
        """Whether a group has too few scores for its level."""
        return self.ranks > self.counts

    def get_state(self) -> dict[str, Any]:
        """Returns the arrays by name."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
        }


def rank(count: int, level: float) -> int:
    """Returns `ceil((count + 1) * level)`, for the decimal number `level`.

    The float 0.9 is above nine tenths. In floats, 0.9 of 10 could become more
    than 9, and the rank 10.
    """
    return math.ceil((count + 1) * decimal(level))


def least_count(level: float) -> int:
    """Returns the smallest number of scores with a finite cutoff."""
    return math.ceil(decimal(level) / (1 - decimal(level)))


def decimal(number: float) -> fractions.Fraction:
    """Returns the decimal number that a float stands for.

    It has 12 digits at most: arithmetic such as `np.arange(0.5, 1, 0.05)`
    gives 0.9500000000000004, which stands for 0.95. A number that 12 digits
    cannot tell from an integer is taken as it is.
    """
    number = float(number)
    rounded = fractions.Fraction(f"{number:.12g}")
    if rounded.denominator == 1:
        return fractions.Fraction(repr(number))
    return rounded


def check_coverage(coverage: Any) -> float:
    """Returns a coverage, or raises an error."""
    return float(check_number("coverage", coverage, above=0.0, below=1.0))


def check_task(name: str, prediction: Prediction, task: str) -> None:
    """Raises an error unless a value is a prediction of the task."""
    if getattr(prediction, "task", None) != task:
        raise ValueError(
            f"`{name}` must be a `{task.capitalize()}Prediction` for one model "
            "output, from `keras_bdl.predict`. "
            f"{how_to_predict(prediction)}"
            f"Received: {type(prediction).__name__}"
        )
