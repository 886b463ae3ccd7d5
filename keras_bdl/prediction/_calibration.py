"""Calibrations of finished predictions."""

import abc
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl._data._checked_inputs import log_probabilities
from keras_bdl.prediction._predictions import ClassificationPrediction
from keras_bdl.prediction._predictions import labelled_entries


class Calibrator(abc.ABC):
    """Base of calibrations that are fitted to held-out predictions.

    A subclass defines `_fit` and `_calibrated`.
    """

    def fit(
        self, prediction: ClassificationPrediction, y: ArrayLike | None = None
    ) -> Self:
        """Fits the calibration to held-out data."""
        counted = labelled_entries(prediction, y)
        log_probs = log_probabilities("prediction", counted.prediction)
        self._fit(log_probs, counted.y)
        return self

    def __call__(
        self, prediction: ClassificationPrediction
    ) -> ClassificationPrediction:
        """Returns the prediction with calibrated probabilities."""
        check_classification("prediction", prediction)
        log_q = self._calibrated(prediction)
        return ClassificationPrediction(
            log_q.astype(prediction.log_mean.dtype),
            y=prediction.y,
            mask=prediction.mask,
            ignore_class=prediction.ignore_class,
        )

    @abc.abstractmethod
    def _fit(self, log_probs: np.ndarray, y: np.ndarray) -> None:
        """Fits the calibration to one row of log probabilities per label."""

    @abc.abstractmethod
    def _calibrated(self, prediction: ClassificationPrediction) -> np.ndarray:
        """Returns the calibrated log probabilities."""


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

    def _fit(self, log_probs: Any, y: Any) -> None:
        """Fits the temperature by (2)."""
        from scipy.optimize import brentq

        chosen = np.take_along_axis(log_probs, y[:, None], axis=-1).mean()
        if np.isneginf(chosen):
            raise ValueError(
                "`prediction` must give every label a positive probability. "
                "Use a model that returns logits. "
                "Received: a label of probability 0"
            )

        def slope(log_beta: Any) -> Any:
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

    def _calibrated(self, prediction: Any) -> Any:
        log_mean = np.asarray(prediction.log_mean, dtype="float64")
        return log_softmax(log_mean * (1.0 / self.temperature))  # (1)

    def __repr__(self) -> str:
        return f"TemperatureScaling(temperature={self._temperature})"


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

    def __init__(self) -> None:
        self._parameters: Any = None

    @property
    def scale(self) -> np.ndarray:
        """a, one number for each class."""
        return self._fitted()[0]

    @property
    def offset(self) -> np.ndarray:
        """b, one number for each class. Their sum is 0."""
        return self._fitted()[1]

    def _fit(self, log_probs: Any, y: Any) -> None:
        """Fits the scales and offsets by (2)."""
        from scipy.optimize import minimize

        log_p = np.maximum(np.asarray(log_probs, "float64"), _LOG_SMALLEST)
        classes = log_p.shape[-1]
        one_hot = np.eye(classes)[y]

        def objective(parameters: Any) -> Any:
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

    def _calibrated(self, prediction: Any) -> Any:
        scale, offset = self._fitted()
        check_classes(prediction, len(scale))
        log_p = np.asarray(prediction.log_mean, "float64")
        log_p = np.maximum(log_p, _LOG_SMALLEST)
        return log_softmax(scale * log_p + offset)  # (1)

    def _fitted(self) -> Any:
        if self._parameters is None:
            raise RuntimeError(
                "`VectorScaling` is not fitted yet. Call `fit(prediction, y)` "
                "with held-out data. Received: no scale"
            )
        return self._parameters


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

    def __init__(self) -> None:
        self._functions: Any = None

    def _fit(self, log_probs: Any, y: Any) -> None:
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

    def _calibrated(self, prediction: Any) -> Any:
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


def check_classes(prediction: ClassificationPrediction, fitted: int) -> None:
    """Raises an error unless a prediction has the classes of `fit`."""
    if prediction.num_classes != fitted:
        raise ValueError(
            "`prediction` must have the classes of `fit`. Received: "
            f"{prediction.num_classes} classes, and {fitted} in `fit`"
        )


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Returns log probabilities, with the classes on the last axis."""
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))
