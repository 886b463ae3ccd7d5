"""A Keras layer that holds a fitted conformal method."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl.conformal._class_scores import APS
from keras_bdl.conformal._class_scores import LAC
from keras_bdl.conformal._class_scores import RAPS
from keras_bdl.conformal._conformal import SavedMethod
from keras_bdl.conformal._conformal import from_state
from keras_bdl.conformal._conformalized_quantiles import ConformalizedQuantiles
from keras_bdl.conformal._intervals import IntervalPredictor
from keras_bdl.conformal._intervals import NormalizedResiduals
from keras_bdl.conformal._risk_control import RiskControl

# Other programs round a probability in another way.
TOLERANCE = 1e-6
# Units in a probability of 1.
UNITS = 2.0**40


@keras.saving.register_keras_serializable(package="keras_bdl")
class ConformalLayer(keras.layers.Layer):
    """Returns the sets of a fitted conformal method, as part of a model.

    Use this layer to save or export sets together with a network, for example
    behind a `keras_bdl.PosteriorPredictive`. It computes in float32. A class
    within 1e-6 of the cutoff is inside, so that rounding loses no coverage.

    A layer draws no random numbers. A randomised `APS` or `RAPS` keeps its
    cutoff, and every class that some v would include is in the set: the sets
    are larger, and the coverage is at least the same. Fit with
    `randomized=False` for the sets of a call in NumPy.

    Args:
        method: A fitted `LAC`, `APS`, `RAPS`, `NormalizedResiduals`,
            `ConformalizedQuantiles` or `RiskControl`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        inputs: Of a classifier, the probabilities, `"mean"` of a
            `PosteriorPredictive`. Of a regression, a dictionary with `"mean"`
            and `"stddev"`, or with `"samples"` for the quantiles of samples.

    Output shape:
        Of a classifier, booleans in the shape of the inputs, or without the
        class axis for the present labels of `RiskControl`. Of a regression, a
        dictionary with `"lower"` and `"upper"` in the shape of the mean.

    Example:

    ```python
    conformal = keras_bdl.conformal.LAC().fit(prediction, y)
    layer = keras_bdl.conformal.ConformalLayer(conformal)
    predictive = keras_bdl.PosteriorPredictive(model, posterior, samples=5)
    inputs = keras.Input((4,))
    outputs = predictive(inputs)
    served = keras.Model(inputs, {**outputs, "set": layer(outputs["mean"])})
    served(x_test)["set"]
    ```
    """

    def __init__(self, method: SavedMethod, **kwargs: Any):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if not isinstance(method, (*_CALLS, IntervalPredictor)):
            raise ValueError(
                "`method` must be a fitted conformal method whose sets depend "
                "on one prediction only, such as `LAC`. "
                f"Received: method={method!r}"
            )
        self.method_state = method.get_state()  # raises before `fit`
        self.method = method
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        """Returns the sets."""
        for kind, compute in _CALLS.items():
            if isinstance(self.method, kind):
                return compute(self.method, inputs)
        raise NotImplementedError(type(self.method).__name__)

    def get_config(self) -> dict[str, Any]:
        """Returns the state of the method, and the arguments of a layer."""
        return {**super().get_config(), "method": _as_json(self.method_state)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ConformalLayer":
        """Returns the layer of a config.

        Args:
            config: The result of `get_config`.
        """
        config = dict(config)
        method = from_state(_from_json(config.pop("method")))
        return cls(method, **config)


def _threshold_sets(method: Any, mean: Any) -> Any:
    values = np.asarray(method.cutoff.values, "float64")
    thresholds = np.where(np.isinf(values), -1.0, np.exp(-values))
    thresholds = np.where(thresholds > 0, thresholds * (1 - TOLERANCE), -1.0)
    return mean >= thresholds.astype("float32")


def _adaptive_sets(method: Any, mean: Any) -> Any:
    order = ops.argsort(-mean, axis=-1)
    ranked = ops.take_along_axis(mean, order, axis=-1)
    # Integers add up exactly. A sum of a thousand float32 is off by more than
    # the tolerance, and LiteRT has no sums in float64.
    units = ops.cast(ops.cast(ranked, "float32") * UNITS, "int64")
    total = ops.cumsum(units, axis=-1)
    # The smallest score of a class, over v, is at v = 0.
    sums = total - units if method.randomized else total
    sums, whole = (ops.cast(s, "float32") for s in (sums, total[..., -1:]))
    scores = sums / whole
    if isinstance(method, RAPS):
        ranks = np.arange(1, mean.shape[-1] + 1)
        penalty = method.penalty * np.maximum(0, ranks - method.free_ranks)
        scores = scores + penalty.astype("float32")
    # The inverse of the order puts scores at the places of their classes.
    scores = ops.take_along_axis(scores, ops.argsort(order, axis=-1), axis=-1)
    limits = np.asarray(method.cutoff.values, "float64") + TOLERANCE
    limits = np.minimum(limits, np.finfo("float32").max)
    return scores <= limits.astype("float32")


def _controlled_sets(method: Any, mean: Any) -> Any:
    if method.presence and mean.shape[-1] == 2:
        mean = mean[..., 1]
    return mean >= np.float32(method.threshold * (1 - TOLERANCE))


def _residual_intervals(method: Any, inputs: Any) -> Any:
    mean = inputs["mean"]
    scale = inputs["stddev"] if method.normalized else ops.ones_like(mean)
    return _ends(mean, mean, scale, method)


def _quantile_intervals(method: Any, inputs: Any) -> Any:
    from scipy.special import ndtri

    tail = (1.0 - method.coverage) / 2
    source = method.fitted_source
    if source == "gaussian":
        reach = float(-ndtri(tail)) * inputs["stddev"]
        low, high = inputs["mean"] - reach, inputs["mean"] + reach
    elif source == "samples":
        samples = inputs["samples"]
        low = ops.quantile(samples, tail, axis=0)
        high = ops.quantile(samples, 1.0 - tail, axis=0)
    else:
        raise ValueError(
            "`method` must have the quantiles of one Gaussian or of samples "
            'in a layer. Fit with `source="gaussian"`. '
            f"Received: source={source!r}"
        )
    return _ends(low, high, ops.ones_like(low), method)


def _ends(low: Any, high: Any, scale: Any, method: Any) -> dict[str, Any]:
    values = np.asarray(method.cutoff.values, "float64")
    limits = np.clip(values, *np.finfo("float32").max * np.array([-1, 1]))
    infinite = np.isposinf(values)
    reach = scale * limits.astype("float32")
    return {
        "lower": ops.where(infinite, -np.inf, low - reach - _slack(low, reach)),
        "upper": ops.where(
            infinite, np.inf, high + reach + _slack(high, reach)
        ),
    }


def _slack(end: Any, reach: Any) -> Any:
    return TOLERANCE * (ops.abs(end) + ops.abs(reach))


_CALLS = {
    LAC: _threshold_sets,
    APS: _adaptive_sets,
    NormalizedResiduals: _residual_intervals,
    ConformalizedQuantiles: _quantile_intervals,
    RiskControl: _controlled_sets,
}


def _as_json(node: Any) -> Any:
    """Returns nested dicts with arrays and infinities as plain JSON."""
    if isinstance(node, dict):
        return {key: _as_json(value) for key, value in node.items()}
    if isinstance(node, np.ndarray):
        # `_from_json` reads numbers of every dtype as float64.
        numbers = [repr(float(number)) for number in node.ravel()]
        return {"array": numbers, "shape": list(node.shape)}
    return node


def _from_json(node: Any) -> Any:
    if isinstance(node, dict):
        if set(node) == {"array", "shape"}:
            numbers = [float(number) for number in node["array"]]
            return np.array(numbers).reshape(node["shape"])
        return {key: _from_json(value) for key, value in node.items()}
    return node
