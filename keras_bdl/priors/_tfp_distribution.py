"""Distributions of TensorFlow Probability as priors, and their configs.

The config of a distribution has this form:

    {"class_name": "Normal", "parameters": {"loc": 0.0, "scale": 1.0}}

A parameter is a number, a string, `None`, a list, an array written as
`{"array": [...], "dtype": "float32"}`, or another distribution. The config
omits parameters with their default value.
"""

import inspect
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import PriorLike
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.priors._prior import Prior


def describe(distribution: Any) -> dict:
    """Returns the config of a distribution."""
    from tensorflow_probability import distributions as tfd

    kind = type(distribution)
    if getattr(tfd, kind.__name__, None) is not kind:
        raise _error(
            f"`{kind.__name__}`, which is no class of `tfp.distributions`"
        )
    known = inspect.signature(kind.__init__).parameters
    return {
        "class_name": kind.__name__,
        "parameters": {
            name: _encode(value, f"`{name}` of `{kind.__name__}`")
            for name, value in distribution.parameters.items()
            if name not in known or value is not known[name].default
        },
    }


def revive(config: dict) -> Any:
    """Returns the distribution that a config describes.

    The function calls only classes of `tfp.distributions`, and creates their
    tensors outside of any graph.
    """
    from tensorflow_probability import distributions as tfd

    kind = getattr(tfd, config["class_name"], None)
    if not (isinstance(kind, type) and issubclass(kind, tfd.Distribution)):
        raise ValueError(
            "The config of a distribution must name a class of "
            "`tensorflow_probability.distributions`. Save the prior again. "
            f"Received: class_name={config['class_name']!r}"
        )
    with tf.init_scope():
        return kind(
            **{name: _decode(v) for name, v in config["parameters"].items()}
        )


def _encode(value: Any, name: Any) -> Any:
    from tensorflow_probability import distributions as tfd

    if isinstance(value, tfd.Distribution):
        return describe(value)
    if isinstance(value, (list, tuple, tf.TensorShape)):
        return [_encode(v, name) for v in value]
    if isinstance(value, tf.Tensor):
        known = tf.get_static_value(value)  # `None` if it depends on inputs
        value = value if known is None else known
    # Test this before `float`: `np.float64` is a `float`, and its dtype counts.
    if isinstance(value, (np.ndarray, np.generic)):
        return {"array": value.tolist(), "dtype": value.dtype.name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise _error(f"{name}, a `{type(value).__name__}`")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return tf.constant(value["array"], value["dtype"])
    return revive(value)


def _error(part: Any) -> Any:
    return ValueError(
        "The arguments of a distribution must be numbers, arrays or other "
        "distributions of TensorFlow Probability. Otherwise a config cannot "
        "hold it, and a `tf.function` cannot create it. Save the weights "
        "alone with `model.save_weights`, or write the prior as a registered "
        f"subclass of `keras_bdl.extend.Prior`. Received: {part}"
    )


@keras.saving.register_keras_serializable(package="keras_bdl")
class TFPDistribution(Prior):
    """Makes a distribution of TensorFlow Probability a prior of weights.

    The event shape of the distribution equals the last axes of the variable,
    and the batch shape is broadcast over the other axes. For example, one
    `MultivariateNormalDiag` of 10 numbers is the prior of each row of a kernel
    of shape `(64, 10)`. The density is computed in the precision of the
    distribution.

    The config holds the name of the class and its arguments: numbers, arrays or
    other distributions. With any other argument, such as the bijector of a
    `TransformedDistribution`, the prior works, but the model can save only its
    weights.

    Args:
        distribution: A continuous distribution with a single output.
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    from tensorflow_probability import distributions as tfd

    prior = keras_bdl.extend.TFPDistribution(tfd.StudentT(3.0, 0.0, 0.1))
    layer = keras.layers.Dense(10, kernel_regularizer=prior)
    ```
    """

    def __init__(self, distribution: Any, *, dataset_size: int | None = None):
        from tensorflow_probability import distributions as tfd

        super().__init__(dataset_size=dataset_size)
        if not isinstance(distribution, tfd.Distribution):
            raise ValueError(
                "`distribution` must be a distribution of TensorFlow "
                f"Probability. Received: distribution={distribution!r}"
            )
        if not getattr(distribution.dtype, "is_floating", False):
            raise ValueError(
                "`distribution` must draw one tensor of floating point "
                "numbers. "
                f"Received: distribution={distribution!r}"
            )
        if _belongs_to_graph(distribution):
            # Other graphs and eager code cannot use tensors of this graph.
            distribution = revive(describe(distribution))
        self.distribution = distribution

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each event, in float32."""
        self._batch_axes(x.shape)
        x = tf.cast(x, self.distribution.dtype)
        return tf.cast(self.distribution.log_prob(x), "float32")

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns the expected `log_prob` for a Gaussian prior, else `None`."""
        from tensorflow_probability import distributions as tfd

        del noise
        if type(self.distribution) is not tfd.Normal:
            return None
        variance = tf.cast(self.distribution.variance(), "float32")
        return self.log_prob(q.mean) - 0.5 * q.variance / variance

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable, in float32."""
        from tensorflow_probability import distributions as tfd

        # With a pair of numbers as seed, TFP ignores the state of TensorFlow.
        seed = keras.random.randint((2,), 0, 2**31 - 1, "int32", seed)
        each = tfd.BatchBroadcast(
            self.distribution, with_shape=self._batch_axes(shape)
        )
        return tf.cast(each.sample(seed=seed), "float32")

    def _batch_axes(self, shape: Any) -> Any:
        """Returns the axes of a variable before those of an event."""
        shape = tuple(shape)
        batch = tuple(self.distribution.batch_shape)
        event = tuple(self.distribution.event_shape)
        axes = shape[: max(len(shape) - len(event), 0)]
        if axes + event != shape or not _broadcasts(batch, axes):
            raise ValueError(
                "`distribution` must fit the variable: the event shape must "
                "equal the last axes, and the batch shape must broadcast to "
                "the other axes. Use a scalar distribution for variables of "
                f"any shape. Received: event shape {event}, batch shape "
                f"{batch}, variable of shape {shape}"
            )
        return axes

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            **super().get_config(),
            "distribution": describe(self.distribution),
        }

    @classmethod
    def from_config(cls, config: dict) -> Any:
        """Returns the prior that `get_config` describes."""
        distribution = revive(config["distribution"])
        return cls(**{**config, "distribution": distribution})


def _belongs_to_graph(distribution: Any) -> Any:
    modules = (distribution, *distribution.submodules)
    values = [value for module in modules for value in vars(module).values()]
    return any(tf.is_symbolic_tensor(value) for value in values)


def _broadcasts(shape: Any, target: Any) -> Any:
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (1, b) for a, b in pairs)


def get_prior(prior: PriorLike | None) -> Any:
    """Returns a prior with `log_prob` and `sample`, or `None`.

    A distribution of TensorFlow Probability becomes a `TFPDistribution`.

    Args:
        prior: `None`, one of `keras_bdl.priors`, a distribution of TensorFlow
            Probability, or any other object with `log_prob` and `sample`.

    Example:

    ```python
    import tensorflow_probability as tfp

    prior = keras_bdl.extend.get_prior(tfp.distributions.Laplace(0.0, 1.0))
    ```
    """
    if prior is None or isinstance(prior, Prior):
        return prior
    if isinstance(prior, type) or not _is_distribution(prior):
        raise ValueError(
            "`prior` must be `None`, one of `keras_bdl.priors`, such as "
            "`keras_bdl.priors.Normal(1.0)`, a distribution of TensorFlow "
            "Probability, or another object with `log_prob` and `sample`. "
            f"Received: prior={prior!r}"
        )
    from tensorflow_probability import distributions as tfd

    of_tfp = isinstance(prior, tfd.Distribution)
    return TFPDistribution(prior) if of_tfp else prior


def _is_distribution(x: Any) -> Any:
    return all(callable(getattr(x, m, None)) for m in ("log_prob", "sample"))
