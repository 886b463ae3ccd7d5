"""Random numbers that are a function of integers, with no hidden state."""

import numpy as np
import tensorflow as tf

PHILOX = 1  # of `tf.random.Algorithm`


def counter_normal(shape, dtype, *, seed: int, index: int, step):
    """Draws N(0, I) noise that is a pure function of its key.

    The same (seed, index, step) gives the same numbers on every replica and
    after a restart, so that mirrored copies of a variable cannot drift apart
    and a resumed chain continues exactly. XLA makes other numbers of the same
    bits than TensorFlow does without it: a chain that changes
    `jit_compile` goes on with noise as good, but other noise.

    Args:
        shape: Shape of the result.
        dtype: Floating dtype of the result.
        seed: The seed of the chain.
        index: Which variable the noise is for.
        step: The optimizer iteration, an integer tensor.

    Returns:
        A tensor of the given shape and dtype.
    """
    # Philox numbers the blocks of its output by a counter of 128 bits. A draw
    # goes on in the lower half, so that steps in the upper one never overlap.
    # The stateless functions of TensorFlow would hash key and counter again,
    # by 50 operations for each variable.
    key = np.random.SeedSequence(seed, spawn_key=(index,))
    step = tf.cast(step, tf.uint64)
    return tf.raw_ops.StatelessRandomNormalV2(
        shape=tuple(shape),
        key=tf.constant(key.generate_state(1, np.uint64)),
        counter=tf.stack([tf.zeros_like(step), step]),
        alg=PHILOX,
        dtype=dtype,
    )


def generator(seed: int, *stream: int):
    """Returns a NumPy generator for draw `seed`.

    Args:
        seed: Selects the draw; any integer from 0 on.
        stream: Integers that tell the uses within a draw apart.
    """
    return np.random.default_rng(sequence(seed, *stream))


def sequence(seed: int, *stream: int):
    """Returns the `numpy.random.SeedSequence` behind `generator`."""
    integer = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not integer or seed < 0:
        raise ValueError(
            f"`seed` must be an integer from 0 on. Received: seed={seed!r}"
        )
    return np.random.SeedSequence(int(seed), spawn_key=stream)
