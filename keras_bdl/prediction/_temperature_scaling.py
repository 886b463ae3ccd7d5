"""Temperature scaling of finished predictions."""

import numpy as np

from keras_bdl._arguments import check_number
from keras_bdl.prediction._calibrator import Calibrator
from keras_bdl.prediction._calibrator import log_softmax

SEARCHED = (1e-3, 1e3)


class TemperatureScaling(Calibrator):
    """Calibrates class probabilities with one fitted temperature.

    Use this class if held-out data show that probabilities are too high or
    too low. With `p` the predictive probabilities, already averaged over the
    posterior samples, and `y` the labels of held-out data,

        q_c = p_c^(1/T) / sum_k p_k^(1/T)                                 (1)
        T = argmin_T mean_i -log q_(y_i)                                  (2)

    `T > 1` makes probabilities more even. The most probable class and the
    accuracy do not change. The objective (2) is convex in `1/T`; `fit` finds
    its minimum as the root of its derivative, to machine precision.

    The result is one distribution and not an average over samples, because
    powers and means do not commute. The result has `num_samples=1` and no
    samples. Its expected entropy is its entropy, so its mutual information
    is 0.

    Args:
        temperature: T, if known. Defaults to `None`: `fit` finds T.

    Example:

    ```python
    # Confidence 0.9 on four held-out examples, of which three are correct.
    held_out = keras_bdl.prediction.ClassificationPrediction.from_probabilities(
        np.full((4, 2), [0.9, 0.1])
    )
    scaling = keras_bdl.prediction.TemperatureScaling()
    scaling.fit(held_out, [0, 0, 0, 1])
    calibrated = scaling(keras_bdl.predict(model, x_test))
    ```

    Reference:
        - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 4.2;
          the paper scales logits, which for one sample gives the same T
    """

    def __init__(self, temperature: float | None = None):
        if temperature is not None:
            check_number("temperature", temperature, above=0.0)
        self._temperature = temperature

    @property
    def temperature(self) -> float:
        """The temperature T."""
        if self._temperature is None:
            raise RuntimeError(
                "`TemperatureScaling` has no temperature yet. Call "
                "`fit(prediction, y)` with held-out data, or pass "
                "`temperature`. Received: temperature=None"
            )
        return self._temperature

    def _fit(self, log_probs, y):
        """Fits the temperature by (2)."""
        from scipy.optimize import brentq

        chosen = np.take_along_axis(log_probs, y[:, None], axis=-1).mean()
        if np.isneginf(chosen):
            raise ValueError(
                "`prediction` must give every label a positive probability. "
                "Use a model that returns logits. "
                "Received: a label of probability 0"
            )

        def slope(log_beta):
            """Returns the derivative of (2) with respect to `1/T`."""
            scaled = np.exp(log_softmax(log_probs * np.exp(log_beta)))
            # A class of probability 0 contributes 0, not 0 * log 0.
            terms = scaled * np.where(scaled > 0, log_probs, 0.0)
            return terms.sum(-1).mean() - chosen

        coldest, hottest = SEARCHED
        if slope(-np.log(coldest)) <= 0:
            raise ValueError(
                "`y` must contain a label that is not the most probable "
                "class. Otherwise the best T is 0. Use more held-out data. "
                f"Received: {len(y)} labels, best at T < {coldest:g}"
            )
        if slope(-np.log(hottest)) >= 0:
            raise ValueError(
                "`prediction` must be better than chance on `y`. Otherwise "
                "the best T is infinite. Check that the labels belong to the "
                "inputs. "
                f"Received: {len(y)} labels, best at T > {hottest:g}"
            )
        root = brentq(slope, -np.log(hottest), -np.log(coldest), xtol=1e-12)
        self._temperature = float(np.exp(-root))

    def _calibrated(self, prediction):
        log_mean = np.asarray(prediction.log_mean, dtype="float64")
        return log_softmax(log_mean * (1.0 / self.temperature))  # (1)

    def __repr__(self) -> str:
        return f"TemperatureScaling(temperature={self._temperature})"
