"""Isotonic calibration of finished predictions."""

from typing import Any

import numpy as np

from keras_bdl.prediction._calibrator import Calibrator
from keras_bdl.prediction._calibrator import check_classes


class IsotonicCalibration(Calibrator):
    """Calibrates class probabilities with an increasing function per class.

    Use this class if there are thousands of held-out examples, and if the
    error of the probabilities has no simple form. For each class c,

        q_c is proportional to g_c(p_c)                                   (1)

    where g_c is the increasing function closest to the share of the label c
    among held-out examples with probability p_c, by least squares. With n
    held-out examples, g_c is at least 1 / (n + 2), so that no class gets the
    probability 0. The most probable class may change. The result is one
    distribution: it has `num_samples=1` and no mutual information.

    Example:

    ```python
    calibration = keras_bdl.prediction.IsotonicCalibration()
    calibration.fit(keras_bdl.predict(model, x), y)
    calibrated = calibration(keras_bdl.predict(model, x_test))
    ```

    Reference:
        - Zadrozny and Elkan, [Transforming Classifier Scores into Accurate
          Multiclass Probability Estimates](
          https://doi.org/10.1145/775047.775151)
    """

    def __init__(self):
        self._functions: Any = None

    def _fit(self, log_probs, y):
        """Fits the functions g_c."""
        from sklearn.isotonic import IsotonicRegression

        p = np.exp(log_probs)
        smallest = 1.0 / (len(y) + 2)
        self._functions = [
            IsotonicRegression(
                y_min=smallest, y_max=1.0 - smallest, out_of_bounds="clip"
            ).fit(p[:, c], y == c)
            for c in range(p.shape[-1])
        ]

    def _calibrated(self, prediction):
        if self._functions is None:
            raise RuntimeError(
                "`IsotonicCalibration` is not fitted yet. Call "
                "`fit(prediction, y)` with held-out data. Received: no function"
            )
        check_classes(prediction, len(self._functions))
        p = prediction.mean
        q = np.stack(
            [
                g.predict(p[..., c].ravel()).reshape(p.shape[:-1])
                for c, g in enumerate(self._functions)
            ],
            axis=-1,
        )
        q = q / q.sum(-1, keepdims=True)  # (1)
        return np.log(q)
