"""Temperature scaling of finished predictions."""

import numbers

import numpy as np

from keras_bdl.data.checked_inputs import check_classification
from keras_bdl.data.checked_inputs import class_labels
from keras_bdl.data.checked_inputs import labels_of
from keras_bdl.data.checked_inputs import log_probabilities
from keras_bdl.prediction.classification_prediction import (
    ClassificationPrediction,
)

SEARCHED = (1e-3, 1e3)


class TemperatureScaling:
    """Sharpens or softens class probabilities by one fitted number.

    With `p` the predictive probabilities, already averaged over the posterior
    draws, and `y` the labels of held-out data,

        q_c = p_c^(1/T) / sum_k p_k^(1/T)                                 (1)
        T = argmin_T mean_i -log q_(y_i)                                  (2)

    `T > 1` softens. The most probable class, and with it the accuracy, stays
    what it was. The likelihood (2) is convex in `1/T`, so that its optimum is
    found as the root of its derivative, to machine precision.

    What comes out is one distribution, no longer an average: powers and means
    do not commute, so no scaled draws belong to it. It has no samples, no
    expected entropy and no mutual information, and `num_samples` is 1.

    Args:
        temperature: T, if it is known. Defaults to `None`: call `fit`.

    Example:

    ```python
    scaling = TemperatureScaling().fit(p_validation, y_validation)
    p = scaling(p_test)
    ```

    Reference:
        - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 4.2;
          for one draw `log p` stands for the logits, which changes nothing
    """

    def __init__(self, temperature: float | None = None):
        number = isinstance(temperature, numbers.Real)
        if temperature is not None and not (
            number and 0 < temperature < np.inf
        ):
            raise ValueError(
                "`temperature` must be positive and finite, or `None` to be "
                f"fitted. Received: temperature={temperature!r}"
            )
        self._temperature = temperature

    @property
    def temperature(self):
        """T."""
        if self._temperature is None:
            raise RuntimeError(
                "`TemperatureScaling` has no temperature yet; call "
                "`fit(prediction, y)` on held-out data, or pass "
                "`temperature`. Received: temperature=None"
            )
        return self._temperature

    def fit(self, prediction: ClassificationPrediction, y=None):
        """Finds the temperature by (2).

        Args:
            prediction: Prediction for data that was not trained on.
            y: Labels, integers or one-hot. Defaults to `None`, the labels
                that the prediction found in its data.

        Returns:
            This object.
        """
        from scipy.optimize import brentq

        log_probs = log_probabilities("prediction", prediction)
        y = class_labels(labels_of(prediction, y), prediction.log_mean.shape)
        chosen = np.take_along_axis(log_probs, y[:, None], axis=-1).mean()
        if np.isneginf(chosen):
            raise ValueError(
                "`prediction` must give every label a positive probability, "
                "or no temperature can help; predict from logits. "
                "Received: a label of probability 0"
            )

        def slope(log_beta):
            """Derivative of (2) by 1/T."""
            scaled = np.exp(_scale(log_probs, np.exp(log_beta)))
            # A class of probability 0 adds 0 and not 0 * log 0.
            terms = scaled * np.where(scaled > 0, log_probs, 0.0)
            return terms.sum(-1).mean() - chosen

        coldest, hottest = SEARCHED
        if slope(-np.log(coldest)) <= 0:
            raise ValueError(
                "`y` must hold a label that is not the most probable class, "
                "or the likelihood rises without end as T falls to 0; use "
                "more held-out data. "
                f"Received: {len(y)} labels, best at T < {coldest:g}"
            )
        if slope(-np.log(hottest)) >= 0:
            raise ValueError(
                "`prediction` must do better than chance on `y`, or the best "
                "T is infinite; check that the labels belong to the inputs. "
                f"Received: {len(y)} labels, best at T > {hottest:g}"
            )
        root = brentq(slope, -np.log(hottest), -np.log(coldest), xtol=1e-12)
        self._temperature = float(np.exp(-root))
        return self

    def __call__(self, prediction: ClassificationPrediction):
        """Returns the prediction scaled by (1)."""
        check_classification("prediction", prediction)
        log_mean = np.asarray(prediction.log_mean, dtype="float64")
        scaled = _scale(log_mean, 1.0 / self.temperature)
        return ClassificationPrediction(
            scaled.astype(prediction.log_mean.dtype), y=prediction.y
        )

    def __repr__(self):
        return f"TemperatureScaling(temperature={self._temperature})"


def _scale(log_probs, beta):
    """Logarithm of (1), with beta = 1/T."""
    scaled = log_probs * beta
    scaled = scaled - scaled.max(-1, keepdims=True)
    return scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))  # (1)
