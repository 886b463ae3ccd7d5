"""Scores of classes: the least ambiguous and the adaptive sets."""

from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl.conformal._conformal import check_coverage
from keras_bdl.conformal._conformal import rank
from keras_bdl.conformal._set_predictor import SetPredictor
from keras_bdl.prediction import ClassificationPrediction


class LAC(SetPredictor):
    """Sets of all classes whose probability is at least a threshold.

    Use this method for the smallest sets on average. With p the predictive
    probabilities,

        score of class c = -log p_c                                       (1)
        set = {c: score of c <= cutoff} = {c: p_c >= threshold}           (2)

    The sets are those of the score 1 - p_c, which has the order of (1). The
    logarithm also tells probabilities apart that round to 1. Sets of hard
    inputs may miss their label more often than others, and a set may be empty.

    The coverage has the guarantee of `keras_bdl.extend.Conformal`, with
    `per_class=True` for each class.

    Args:
        per_class: Whether every class has a cutoff of its own, found from the
            calibration data with this label (Mondrian). The coverage then
            holds for each class. A class with too few labels is in every set.
            Defaults to `False`.

    Example:

    ```python
    conformal = keras_bdl.conformal.LAC().fit(prediction, y, coverage=0.9)
    sets = conformal(keras_bdl.predict(model, x_test))
    print(sets.evaluate(y_test))
    ```

    Reference:
        - [Sadinle et al., 2019](https://arxiv.org/abs/1609.00451), theorem 1
    """

    def class_scores(
        self, log_probs: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """Returns the score of every class, (1)."""
        return -log_probs  # (1)

    def label_scores(
        self, log_probs: np.ndarray, keys: np.ndarray, y: np.ndarray
    ) -> np.ndarray:
        """Returns the score of each label."""
        return -np.take_along_axis(log_probs, y[:, None], axis=-1)[:, 0]


# Penalties that the paper of `RAPS` tries.
PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)


class APS(SetPredictor):
    """Sets of the most probable classes, larger for harder inputs.

    Use this method if the coverage should be about the same for easy and hard
    inputs. With p_(1) >= p_(2) >= ... the sorted probabilities, and one uniform
    random number v for each input,

        score of the class of rank r = p_(1) + ... + p_(r-1) + v p_(r)    (1)
        set = {c: score of c <= cutoff}                                   (2)

    Classes of equal probability are ranked by their number. Equal scores are
    ordered by v, so ties do no harm to the coverage. A set may be
    empty.

    With exchangeable data, a new set contains its label with probability
    k/(n + 1), where k = ceil((n + 1) * coverage). The coverage given the
    calibration data is one draw of Beta(k, n + 1 - k). With `per_class=True`
    both hold for each class, with n the labels of the class.

    These statements are exact over the data and over v, so with a new `seed`
    for each use. A fixed seed is one draw of v: over calibration sets that all
    use it, the mean coverage is near k/(n + 1), a little above or below. With
    `randomized=False` nothing depends on v, and the probability is at least
    k/(n + 1).

    Args:
        randomized: Whether v is random. Otherwise v is 1, and sets of the same
            input are always equal. Defaults to `True`.
        seed: Selects v: row i of the calibration data gets number i of
            `np.random.RandomState(seed)`, and later rows the next numbers.
            The default does not change from use to use. Defaults to `0`.
        per_class: Whether every class has a cutoff of its own, found from the
            calibration data with this label (Mondrian). The coverage then
            holds for each class. A class with too few labels is in every set.
            Defaults to `False`.

    Example:

    ```python
    conformal = keras_bdl.conformal.APS(seed=1).fit(prediction, y)
    conformal(keras_bdl.predict(model, x_test)).sizes
    ```

    Reference:
        - [Romano et al., 2020](https://arxiv.org/abs/2006.02544), eq. 5; our
          v is the paper's 1 - u
    """

    def __init__(
        self, *, randomized: bool = True, seed: int = 0, per_class: bool = False
    ):
        super().__init__(per_class=per_class)
        self.randomized = check_bool("randomized", randomized)
        check_number("seed", seed, at_least=0, below=2**32, integer=True)
        self.seed = seed
        # State of the stream of random numbers before some rows.
        self._states: dict[tuple, Any] = {}

    def ranked_scores(
        self, sorted_probs: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """Returns the score of every rank, which never falls along a row."""
        total = np.cumsum(sorted_probs, axis=-1)
        scores = keys[:, None] * sorted_probs
        scores[:, 1:] += total[:, :-1]  # (1)
        # Sums of float32 miss 1, each by another rounding error. The score of
        # the last class must not depend on it.
        return scores / total[:, -1:]

    def class_scores(
        self, log_probs: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """Returns the score of every class, (1)."""
        order = np.argsort(-log_probs, axis=-1, kind="stable")
        ranked = np.take_along_axis(log_probs, order, axis=-1)
        scores = np.empty(ranked.shape)
        ranked_scores = self.ranked_scores(_probabilities(ranked), keys)
        np.put_along_axis(scores, order, ranked_scores, axis=-1)
        return scores

    def label_scores(
        self, log_probs: np.ndarray, keys: np.ndarray, y: np.ndarray
    ) -> np.ndarray:
        """Returns the score of each label, from sorted values."""
        above = _classes_above(log_probs, y)
        scores = self.ranked_scores(_descending(log_probs), keys)
        return np.take_along_axis(scores, above[:, None], axis=-1)[:, 0]

    def sizes(
        self, log_probs: np.ndarray, keys: np.ndarray, limits: np.ndarray
    ) -> np.ndarray:
        """Returns the size of each set, from sorted values if possible."""
        if limits.shape[-1] != 1:
            return super().sizes(log_probs, keys, limits)
        scores = self.ranked_scores(_descending(log_probs), keys)
        return (scores <= limits).sum(-1)

    def draw_keys(self, first: int, count: int) -> np.ndarray:
        """Returns v of some rows."""
        if not self.randomized:
            return super().draw_keys(first, count)
        seed, stream = self.seed, np.random.RandomState(self.seed)
        # Row by row, the time stays that of one row.
        known = [row for s, row in self._states if s == seed and row <= first]
        start = max(known, default=0)
        if start:
            stream.set_state(self._states[seed, start])
        stream.uniform(size=first - start)
        states = {(seed, first): stream.get_state()}
        # MAPIE subtracts u p_(r) from the sum up to r, and u = 1 - v.
        keys = 1.0 - stream.uniform(size=count)
        self._states = {**states, (seed, first + count): stream.get_state()}
        return keys


class RAPS(APS):
    """Adaptive sets with a penalty on classes of a low rank.

    Use this method in place of `APS` if there are many classes: the tail of
    small and noisy probabilities makes the sets of `APS` large. The score of
    the class of rank r is

        p_(1) + ... + p_(r-1) + v p_(r) + penalty * max(0, r - free_ranks)  (1)

    The guarantee is that of `APS`, if `penalty` and `free_ranks` do not depend
    on the calibration data: choose them before, or with `tuned` on other data.
    As there, it is exact with a new `seed` for each use; a fixed seed is one
    draw of v.

    Args:
        penalty: Weight of the penalty, at least zero. Defaults to `0.01`.
        free_ranks: Number of ranks without a penalty. Defaults to `5`.
        randomized: Whether v is random, as in `APS`. Defaults to `True`.
        seed: Selects v, as in `APS`. Defaults to `0`.
        per_class: Whether every class has a cutoff of its own, as in `APS`.
            Defaults to `False`.

    Example:

    ```python
    conformal = keras_bdl.conformal.RAPS(free_ranks=1).fit(prediction, y)
    conformal(keras_bdl.predict(model, x_test)).sizes
    ```

    Reference:
        - [Angelopoulos et al., 2021](https://arxiv.org/abs/2009.14193), eq. 4;
          `penalty` is the paper's lambda, `free_ranks` its k_reg; `tuned` is
          its appendix E
    """

    def __init__(
        self,
        *,
        penalty: float = 0.01,
        free_ranks: int = 5,
        randomized: bool = True,
        seed: int = 0,
        per_class: bool = False,
    ):
        super().__init__(randomized=randomized, seed=seed, per_class=per_class)
        self.penalty = check_number("penalty", penalty, at_least=0.0)
        self.free_ranks = check_count("free_ranks", free_ranks, at_least=0)

    @classmethod
    def tuned(
        cls,
        prediction: ClassificationPrediction,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.9,
        penalties: Sequence[float] = PENALTIES,
        randomized: bool = True,
        seed: int = 0,
        per_class: bool = False,
    ) -> Self:
        """Returns the method with the smallest sets on tuning data.

        `free_ranks` is the number of ranks that hold the label for the share
        `coverage` of the tuning data. `penalty` is the one with the smallest
        mean size of their sets.

        The guarantee holds if `fit` gets other data than these: split the data
        that were not used in training in two.

        Args:
            prediction: Prediction for data that neither the training nor `fit`
                uses.
            y: Labels. Defaults to `None`, those in the prediction.
            coverage: The coverage that `fit` will get. Defaults to `0.9`.
            penalties: Penalties to try. Defaults to the paper's `(0.001, 0.01,
                0.1, 0.2, 0.5)`.
            randomized: Argument of the constructor. Defaults to `True`.
            seed: Argument of the constructor. Defaults to `0`.
            per_class: Argument of the constructor. Defaults to `False`.

        Example:

        ```python
        other, labels = keras_bdl.predict(model, x_test), y_test
        conformal = keras_bdl.conformal.RAPS.tuned(other, labels)
        conformal.fit(prediction, y, coverage=0.9)
        ```
        """
        if not np.size(penalties):
            raise ValueError(
                "`penalties` must hold at least one penalty. "
                f"Received: penalties={penalties!r}"
            )
        kwargs: dict[str, Any] = {
            "randomized": randomized,
            "seed": seed,
            "per_class": per_class,
        }
        method = cls(**kwargs)
        prediction, y = method.counted(prediction, y)
        ranks = np.empty(len(y), int)
        for rows, block in method.blocks(prediction):
            ranks[rows] = 1 + _classes_above(block, y[rows])
        k = min(rank(len(y), check_coverage(coverage)), len(y))
        free_ranks = int(np.partition(ranks, k - 1)[k - 1])
        methods = [
            cls(penalty=penalty, free_ranks=free_ranks, **kwargs)
            for penalty in np.ravel(penalties).tolist()
        ]
        sizes = [
            method.fit(prediction, y, coverage=coverage)(prediction).sizes
            for method in methods
        ]
        best = methods[int(np.argmin(np.mean(sizes, axis=1)))]
        return cls(**best.get_config())

    def ranked_scores(
        self, sorted_probs: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """Returns the score of every rank, (1)."""
        ranks = np.arange(1, sorted_probs.shape[-1] + 1)
        penalty = self.penalty * np.maximum(0, ranks - self.free_ranks)
        return super().ranked_scores(sorted_probs, keys) + penalty  # (1)


def _classes_above(log_probs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the number of classes that rank above each label."""
    chosen = np.take_along_axis(log_probs, y[:, None], axis=-1)
    before = np.arange(log_probs.shape[-1]) < y[:, None]
    above = (log_probs > chosen).sum(-1)
    return above + ((log_probs == chosen) & before).sum(-1)


def _descending(log_probs: np.ndarray) -> np.ndarray:
    """Returns the probabilities of each row, the largest first."""
    # Not a reversed view: `exp` of a view may round in another way.
    return _probabilities(-np.sort(-log_probs, axis=-1))


def _probabilities(log_probs: np.ndarray) -> np.ndarray:
    return np.exp(log_probs).astype("float64")
