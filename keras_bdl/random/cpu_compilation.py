"""Whether random draws must be compiled apart from the training step."""

import functools
import platform

import tensorflow as tf


@functools.cache
def keras_compiles_nothing() -> bool:
    """Returns whether Keras leaves training steps to plain TensorFlow.

    On a machine that has only CPUs, Keras does not compile training steps,
    and compiling a large draw alone saves time. Systems other than Linux may
    lack XLA for CPUs, so the result there is `False`.
    """
    kinds = {d.device_type for d in tf.config.list_physical_devices()}
    return kinds == {"CPU"} and platform.system() == "Linux"
