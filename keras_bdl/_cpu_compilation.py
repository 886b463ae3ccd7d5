"""Whether XLA should compile a part of a training step."""

import functools
import platform

import tensorflow as tf


def pays_to_compile(size: int, *, at_least: int) -> bool:
    """Returns whether XLA should compile a part of the graph of a step.

    On a machine that has only CPUs, Keras does not compile training steps.
    Plain TensorFlow reads and writes memory once for each operation, XLA once
    for many. Compiling takes time, so it pays for large tensors only. The
    bounds were measured on two cores.

    Args:
        size: Number of elements of the largest tensor.
        at_least: Smallest size that is worth compiling.
    """
    return (
        size >= at_least
        and not tf.executing_eagerly()
        and not tf.distribute.has_strategy()
        and keras_compiles_nothing()
    )


@functools.cache
def keras_compiles_nothing() -> bool:
    """Returns whether Keras leaves training steps to plain TensorFlow.

    Keras compiles no training step on a machine that has only CPUs. Without XLA
    for CPUs, the result is `False`: TensorFlow for TPUs lacks it, and systems
    other than Linux may lack it.
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
