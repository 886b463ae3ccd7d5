"""Vector scaling of finished predictions."""

from typing import Any

import numpy as np

from keras_bdl.prediction._calibrator import Calibrator
from keras_bdl.prediction._calibrator import check_classes
from keras_bdl.prediction._calibrator import log_softmax

# Replaces log 0, which no scale can move.
_LOG_SMALLEST = float(np.log(np.finfo("float64").tiny))


class VectorScaling(Calibrator):
    """Calibrates class probabilities with a scale and an offset per class.

    Use this class if held-out data show that some classes are predicted too
    often. It needs more held-out data than `TemperatureScaling`. With `p` the
    predictive probabilities and `y` the labels of held-out data,

        q_c is proportional to exp(a_c log p_c + b_c)                     (1)
        a, b = argmin mean_i -log q_(y_i)                                 (2)

    The objective (2) is convex. The most probable class may change. The result
    is one distribution and not an average over samples: it has
    `num_samples=1` and no mutual information.

    Example:

    ```python
    scaling = keras_bdl.prediction.VectorScaling()
    scaling.fit(keras_bdl.predict(model, x), y)
    calibrated = scaling(keras_bdl.predict(model, x_test))
    ```

    Reference:
        - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 4.2
    """

    def __init__(self):
        self._parameters: Any = None

    @property
    def scale(self) -> np.ndarray:
        """a, one number for each class."""
        return self._fitted()[0]

    @property
    def offset(self) -> np.ndarray:
        """b, one number for each class. Their sum is 0."""
        return self._fitted()[1]

    def _fit(self, log_probs, y):
        """Fits the scales and offsets by (2)."""
        from scipy.optimize import minimize

        log_p = np.maximum(np.asarray(log_probs, "float64"), _LOG_SMALLEST)
        classes = log_p.shape[-1]
        one_hot = np.eye(classes)[y]

        def objective(parameters):
            a, b = parameters.reshape(2, classes)
            log_q = log_softmax(a * log_p + b)
            error = (np.exp(log_q) - one_hot) / len(y)
            gradient = np.stack([np.sum(error * log_p, 0), error.sum(0)])
            return -np.sum(one_hot * log_q) / len(y), gradient.ravel()

        start = np.concatenate([np.ones(classes), np.zeros(classes)])
        found = minimize(objective, start, jac=True, method="L-BFGS-B")
        if not np.all(np.isfinite(found.x)):
            raise ValueError(
                "`prediction` and `y` must have a best scale. Use more "
                f"held-out data. Received: {len(y)} labels"
            )
        a, b = found.x.reshape(2, classes)
        self._parameters = a, b - b.mean()

    def _calibrated(self, prediction):
        scale, offset = self._fitted()
        check_classes(prediction, len(scale))
        log_p = np.asarray(prediction.log_mean, "float64")
        log_p = np.maximum(log_p, _LOG_SMALLEST)
        return log_softmax(scale * log_p + offset)  # (1)

    def _fitted(self):
        if self._parameters is None:
            raise RuntimeError(
                "`VectorScaling` is not fitted yet. Call `fit(prediction, y)` "
                "with held-out data. Received: no scale"
            )
        return self._parameters
