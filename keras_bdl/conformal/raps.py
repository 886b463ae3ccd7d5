"""Regularised adaptive sets of classes."""

import numpy as np

from keras_bdl.arguments import check_count
from keras_bdl.arguments import check_number
from keras_bdl.conformal.aps import APS


class RAPS(APS):
    """Adaptive sets with a penalty on classes of a low rank.

    Use this method in place of `APS` if there are many classes: the tail of
    small and noisy probabilities makes the sets of `APS` large. The score of
    the class of rank r is

        p_(1) + ... + p_(r-1) + v p_(r) + penalty * max(0, r - free_ranks)  (1)

    The guarantee is that of `APS`, if `penalty` and `free_ranks` do not depend
    on the calibration data: choose them before, or on other data. As there, it
    is exact with a new `seed` for each use; a fixed seed is one draw of v.

    Args:
        penalty: Weight of the penalty, at least zero. Defaults to `0.01`.
        free_ranks: Number of ranks without a penalty. Defaults to `5`.

    Example:

    ```python
    conformal = keras_bdl.conformal.RAPS(free_ranks=1).fit(prediction, y)
    conformal(keras_bdl.predict(model, x_test)).sizes
    ```

    Reference:
        - [Angelopoulos et al., 2021](https://arxiv.org/abs/2009.14193), eq. 4;
          `penalty` is the paper's lambda, `free_ranks` its k_reg
    """

    def __init__(self, *, penalty: float = 0.01, free_ranks: int = 5, **kwargs):
        super().__init__(**kwargs)
        self.penalty = check_number("penalty", penalty, at_least=0.0)
        self.free_ranks = check_count("free_ranks", free_ranks, at_least=0)

    def ranked_scores(
        self, sorted_probs: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """Returns the score of every rank, (1)."""
        ranks = np.arange(1, sorted_probs.shape[-1] + 1)
        penalty = self.penalty * np.maximum(0, ranks - self.free_ranks)
        return super().ranked_scores(sorted_probs, keys) + penalty  # (1)
