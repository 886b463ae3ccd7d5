"""Least ambiguous sets of classes."""

import numpy as np

from keras_bdl.conformal._set_predictor import SetPredictor


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
