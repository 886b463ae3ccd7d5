"""Any distribution of TensorFlow Probability as a prior.

The config of a distribution looks like this:

    {"class_name": "Normal", "parameters": {"loc": 0.0, "scale": 1.0}}

A parameter is a number, a string, `None`, a list, an array written as
`{"array": [...], "dtype": "float32"}`, or another distribution. The config
leaves out parameters that have their default value.
"""

import inspect

import keras
import numpy as np
import tensorflow as tf

from keras_bdl.priors.prior import Prior


def describe(distribution):
    """Returns the config of a distribution."""
    from tensorflow_probability import distributions as tfd

    kind = type(distribution)
    if getattr(tfd, kind.__name__, None) is not kind:
        raise _error(f"`{kind.__name__}`, which is no class of TFP")
    known = inspect.signature(kind.__init__).parameters
    return {
        "class_name": kind.__name__,
        "parameters": {
            name: _encode(value, f"`{name}` of `{kind.__name__}`")
            for name, value in distribution.parameters.items()
            if name not in known or value is not known[name].default
        },
    }


def revive(config):
    """Returns the distribution that a config describes.

    Nothing but a class of `tfp.distributions` is called. Its tensors belong
    to no graph, wherever this is called.
    """
    from tensorflow_probability import distributions as tfd

    kind = getattr(tfd, config["class_name"], None)
    if not (isinstance(kind, type) and issubclass(kind, tfd.Distribution)):
        raise ValueError(
            "A config of a distribution must name a class of "
            "`tensorflow_probability.distributions`. "
            f"Received: class_name={config['class_name']!r}"
        )
    with tf.init_scope():
        return kind(
            **{name: _decode(v) for name, v in config["parameters"].items()}
        )


def _encode(value, name):
    from tensorflow_probability import distributions as tfd

    if isinstance(value, tfd.Distribution):
        return describe(value)
    if isinstance(value, (list, tuple, tf.TensorShape)):
        return [_encode(v, name) for v in value]
    if isinstance(value, tf.Tensor):
        known = tf.get_static_value(value)  # `None` if it depends on inputs
        value = value if known is None else known
    # Before the numbers: a NumPy number has a dtype, which is to be kept.
    if isinstance(value, (np.ndarray, np.generic)):
        return {"array": value.tolist(), "dtype": value.dtype.name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise _error(f"{name}, a `{type(value).__name__}`")


def _decode(value):
    if isinstance(value, list):
        return [_decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return tf.constant(value["array"], value["dtype"])
    return revive(value)


def _error(part):
    return ValueError(
        "A distribution must be made of numbers, arrays and distributions of "
        "TensorFlow Probability to be written into a config, or to be made "
        "inside a `tf.function`. Save the weights alone, with "
        "`model.save_weights`, or write the prior as a registered subclass of "
        f"`keras_bdl.priors.Prior`. Received: {part}"
    )


@keras.saving.register_keras_serializable(package="keras_bdl")
class TFPDistribution(Prior):
    """A distribution of TensorFlow Probability as the prior of a variable.

    The last axes of the variable are the event of the distribution, and its
    batch is broadcast over the others: one `MultivariateNormalDiag` of 10
    numbers is the prior of each row of a kernel of shape `(64, 10)`. The
    density is computed in the precision of the distribution.

    The config holds the name of the class and its arguments, which have to be
    numbers, arrays or distributions again. Where they are not, such as the
    bijector of a `TransformedDistribution`, the prior works, but a model with
    it can only save its weights.

    Args:
        distribution: A continuous distribution with a single output.
        dataset_size: See `Prior`. Defaults to `None`.

    Example:

    ```python
    tfd = tensorflow_probability.distributions
    prior = keras_bdl.priors.TFPDistribution(tfd.StudentT(3.0, 0.0, 0.1))
    keras.layers.Dense(10, kernel_regularizer=prior)
    ```
    """

    def __init__(self, distribution, dataset_size: int | None = None):
        from tensorflow_probability import distributions as tfd

        super().__init__(dataset_size)
        if not isinstance(distribution, tfd.Distribution):
            raise ValueError(
                "`distribution` must be a distribution of TensorFlow "
                f"Probability. Received: distribution={distribution!r}"
            )
        if not getattr(distribution.dtype, "is_floating", False):
            raise ValueError(
                "`distribution` must be one of floating point numbers, of one "
                f"tensor. Received: distribution={distribution!r}"
            )
        if _belongs_to_graph(distribution):
            # No other graph could use its tensors, nor eager code.
            distribution = revive(describe(distribution))
        self.distribution = distribution

    def log_prob(self, x):
        """Returns the log density of each event, in float32."""
        self._batch_axes(x.shape)
        x = tf.cast(x, self.distribution.dtype)
        return tf.cast(self.distribution.log_prob(x), "float32")

    def expected_log_prob(self, q, noise):
        """Returns `log_prob` of a Gaussian, averaged; otherwise `None`."""
        from tensorflow_probability import distributions as tfd

        del noise
        if type(self.distribution) is not tfd.Normal:
            return None
        variance = tf.cast(self.distribution.variance(), "float32")
        return self.log_prob(q.mean) - 0.5 * q.variance / variance

    def sample(self, shape, seed=None):
        """Returns a draw of a variable of the given shape, in float32."""
        from tensorflow_probability import distributions as tfd

        # A seed of TFP that is a pair of numbers does not depend on the state
        # of TensorFlow.
        seed = keras.random.randint((2,), 0, 2**31 - 1, "int32", seed)
        each = tfd.BatchBroadcast(
            self.distribution, with_shape=self._batch_axes(shape)
        )
        return tf.cast(each.sample(seed=seed), "float32")

    def _batch_axes(self, shape):
        """Returns the axes of a variable that are not those of an event."""
        shape = tuple(shape)
        batch = tuple(self.distribution.batch_shape)
        event = tuple(self.distribution.event_shape)
        axes = shape[: max(len(shape) - len(event), 0)]
        if axes + event != shape or not _broadcasts(batch, axes):
            raise ValueError(
                "`distribution` must fit the variable: its event shape must be "
                "that of the last axes, and its batch shape must broadcast to "
                "the other axes. Use a scalar distribution for variables of "
                f"any shape. Received: event shape {event}, batch shape "
                f"{batch}, variable of shape {shape}"
            )
        return axes

    def get_config(self):
        """Returns all arguments."""
        return {
            **super().get_config(),
            "distribution": describe(self.distribution),
        }

    @classmethod
    def from_config(cls, config):
        """Returns the prior that `get_config` described."""
        distribution = revive(config["distribution"])
        return cls(**{**config, "distribution": distribution})


def _belongs_to_graph(distribution):
    modules = (distribution, *distribution.submodules)
    values = [value for module in modules for value in vars(module).values()]
    return any(tf.is_symbolic_tensor(value) for value in values)


def _broadcasts(shape, target):
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (1, b) for a, b in pairs)


def get(prior):
    """Returns a prior with `log_prob` and `sample`, or `None`.

    Args:
        prior: `None`, one of `keras_bdl.priors`, a distribution of TensorFlow
            Probability, which is wrapped in a `TFPDistribution`, or any other
            object with `log_prob` and `sample`.
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

    is_of_tfp = isinstance(prior, tfd.Distribution)
    return TFPDistribution(prior) if is_of_tfp else prior


def _is_distribution(x):
    return all(callable(getattr(x, m, None)) for m in ("log_prob", "sample"))
