"""Adaptive sets of classes."""

import numpy as np

from keras_bdl.arguments import check_bool
from keras_bdl.arguments import check_number
from keras_bdl.conformal.set_predictor import SetPredictor


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

    Example:

    ```python
    conformal = keras_bdl.conformal.APS(seed=1).fit(prediction, y)
    conformal(keras_bdl.predict(model, x_test)).sizes
    ```

    Reference:
        - [Romano et al., 2020](https://arxiv.org/abs/2006.02544), eq. 5; our
          v is the paper's 1 - u
    """

    def __init__(self, *, randomized: bool = True, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.randomized = check_bool("randomized", randomized)
        check_number("seed", seed, at_least=0, below=2**32, integer=True)
        self.seed = seed

    def ranked_scores(
        self, sorted_probs: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """Returns the score of every rank, which never falls along a row.

        Args:
            sorted_probs: Probabilities in float64, the largest first.
            keys: v of each row.
        """
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
        chosen = np.take_along_axis(log_probs, y[:, None], axis=-1)
        before = np.arange(log_probs.shape[-1]) < y[:, None]
        rank = (log_probs > chosen).sum(-1)
        rank += ((log_probs == chosen) & before).sum(-1)
        scores = self.ranked_scores(_descending(log_probs), keys)
        return np.take_along_axis(scores, rank[:, None], axis=-1)[:, 0]

    def sizes(
        self, log_probs: np.ndarray, keys: np.ndarray, limits: np.ndarray
    ) -> np.ndarray:
        """Returns the size of each set, from sorted values if possible."""
        if limits.shape[-1] != 1:
            return super().sizes(log_probs, keys, limits)
        scores = self.ranked_scores(_descending(log_probs), keys)
        return (scores <= limits).sum(-1)

    def draw_keys(self, first: int, count: int) -> np.ndarray:
        """Returns v of some rows.

        Args:
            first: Number of rows before these.
            count: Number of rows.
        """
        if not self.randomized:
            return super().draw_keys(first, count)
        stream = np.random.RandomState(self.seed)
        # MAPIE subtracts u p_(r) from the sum up to r, and u = 1 - v.
        return 1.0 - stream.uniform(size=first + count)[first:]


def _descending(log_probs):
    """Returns the probabilities of each row, the largest first."""
    # Not a reversed view: `exp` of a view may round in another way.
    return _probabilities(-np.sort(-log_probs, axis=-1))


def _probabilities(log_probs):
    return np.exp(log_probs).astype("float64")
