"""Configs of the distributions of TensorFlow Probability.

    {"class_name": "Normal", "parameters": {"loc": 0.0, "scale": 1.0}}

A parameter is a number, a string, `None`, a list, an array written as
`{"array": [...], "dtype": "float32"}`, or a distribution again. Parameters that
have their default value are left out.
"""

import inspect

import numpy as np
import tensorflow as tf


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
