"""Moments of a batch that may be differentiated twice."""

import contextlib
import threading

import tensorflow as tf


class _Replacement:
    """Replaces a function of TensorFlow as long as somebody needs it."""

    def __init__(self):
        self._lock = threading.Lock()
        self._users = 0
        self._original = None

    @contextlib.contextmanager
    def used(self):
        # Replicas are threads, and enter and leave in any order.
        with self._lock:
            if self._users == 0:
                self._original = tf.nn.moments
                tf.nn.moments = _moments
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    tf.nn.moments = self._original


_REPLACEMENT = _Replacement()


def exact_moments():
    """Lets normalization layers be differentiated twice inside a block.

    TensorFlow takes the mean in its variance for a constant. That does not
    change the gradient, as deviations add up to zero, but the gradient of the
    gradient: `BatchNormalization`, `GroupNormalization` and
    `LayerNormalization` of Keras all have a wrong one. The function that
    takes its place has the same values and the same gradient.
    """
    return _REPLACEMENT.used()


def _moments(x, axes, shift=None, keepdims=False, name=None):
    """Returns mean and variance, as `tf.nn.moments`."""
    del shift  # is not used by the original either
    with tf.name_scope(name or "moments"):
        short = x.dtype == tf.float16
        y = tf.cast(x, tf.float32) if short else x
        mean = tf.reduce_mean(y, axes, keepdims=True)
        # Whatever the center, this is the variance, and so are its gradients.
        # The second term is zero, and it alone is what TensorFlow leaves out.
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
