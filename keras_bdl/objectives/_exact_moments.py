"""A context with exact second derivatives of `tf.nn.moments`."""

from contextlib import AbstractContextManager

import tensorflow as tf

from keras_bdl._replaced_in_thread import replaced


def exact_moments() -> AbstractContextManager[None]:
    """Returns a context with exact second derivatives of `tf.nn.moments`.

    In the variance, `tf.nn.moments` treats the mean as a constant. The gradient
    is still right, since the deviations from the mean add up to zero. The
    gradient of the gradient is wrong, also in the Keras layers
    `BatchNormalization`, `GroupNormalization` and `LayerNormalization`.

    Inside the context, this thread calls a replacement with the same values,
    the same gradient, and the exact gradient of the gradient. Other threads
    call `tf.nn.moments`.
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
        # The variance is the same for any center. TensorFlow leaves out the
        # second term: it is zero here, but its second derivative is not.
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
