"""Moments of a batch that may be differentiated twice."""

from contextlib import AbstractContextManager

import tensorflow as tf

from keras_bdl.replaced_in_thread import replaced


def exact_moments() -> AbstractContextManager[None]:
    """Returns a block that differentiates normalization layers twice.

    `tf.nn.moments` takes the mean in its variance for a constant. That does
    not change the gradient, since deviations add up to zero. It does change
    the gradient of the gradient, so `BatchNormalization`, `GroupNormalization`
    and `LayerNormalization` of Keras have a wrong one.

    Inside the block, this thread calls a function with the same values, the
    same gradient, and the exact gradient of the gradient. Other threads call
    `tf.nn.moments`.
    """
    return replaced(tf.nn, "moments", _moments)


def _moments(original, x, axes, shift=None, keepdims=False, name=None):
    """Returns mean and variance, as `tf.nn.moments`."""
    del original
    del shift  # is not used by the original either
    with tf.name_scope(name or "moments"):
        short = x.dtype == tf.float16
        y = tf.cast(x, tf.float32) if short else x
        mean = tf.reduce_mean(y, axes, keepdims=True)
        # Any center gives this variance and its gradients. The second term is
        # zero, and is the term that TensorFlow leaves out.
        center = tf.stop_gradient(mean)
        squares = tf.math.squared_difference(y, center)
        variance = tf.reduce_mean(squares, axes, keepdims=True)
        variance -= tf.square(mean - center)
        if not keepdims:
            mean = tf.squeeze(mean, axes)
            variance = tf.squeeze(variance, axes)
        return (
            (tf.cast(mean, x.dtype), tf.cast(variance, x.dtype))
            if short
            else (mean, variance)
        )
