"""Whether random draws must be compiled apart from the training step."""

import functools
import platform

import tensorflow as tf


@functools.cache
def keras_compiles_nothing() -> bool:
    """Returns whether Keras leaves training steps to plain TensorFlow.

    On a machine that has only CPUs, Keras does not compile training steps,
    and compiling a large draw alone saves time. Without XLA for CPUs, the
    result is `False`: TensorFlow for TPUs lacks it, and systems other than
    Linux may lack it.
    """
    kinds = {d.device_type for d in tf.config.list_physical_devices()}
    return kinds == {"CPU"} and platform.system() == "Linux" and _has_xla()


def _has_xla():
    """Returns whether XLA can compile a function for the CPU."""
    function = tf.function(tf.identity, jit_compile=True, autograph=False)
    with tf.init_scope():
        try:
            function(0.0)
        except tf.errors.NotFoundError:
            return False
    return True
