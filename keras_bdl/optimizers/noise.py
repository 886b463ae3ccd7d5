"""Gaussian noise addressed by a counter instead of a hidden state."""

import tensorflow as tf


def counter_normal(shape, dtype, *, seed: int, index: int, step):
    """Draws N(0, I) noise that is a pure function of its key.

    The same (seed, index, step) gives the same numbers on every replica and
    after a restart, so that mirrored copies of a variable cannot drift apart
    and a resumed chain continues exactly.

    Args:
        shape: Shape of the result.
        dtype: Floating dtype of the result.
        seed: The seed of the chain.
        index: Which variable the noise is for.
        step: The optimizer iteration, an integer tensor.

    Returns:
        A tensor of the given shape and dtype.
    """
    key = tf.constant([seed, 0], dtype=tf.int64)
    for data in (index, tf.cast(step, tf.int64)):
        key = tf.random.experimental.stateless_fold_in(key, data, alg="philox")
    # Named, since XLA would choose another algorithm, and so another chain.
    return tf.random.stateless_normal(shape, key, dtype=dtype, alg="philox")
