"""Random numbers as pure functions of integers, without hidden state."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_bdl._arguments import check_number

PHILOX = 1  # of `tf.random.Algorithm`


def counter_bits(shape: Any, *, seed: int, index: int, step: Any) -> tf.Tensor:
    """Returns 32 random bits for each number, a pure function of its key.

    The same (seed, index, step) gives the same bits on every replica, with and
    without XLA, and after a restart: mirrored copies of a variable stay equal,
    and a resumed chain continues exactly. With another `jit_compile`, or on
    another device, its steps are equal up to rounding.

    Args:
        shape: Shape of the result.
        seed: The seed of the chain.
        index: Index of the variable.
        step: The optimizer iteration, an integer tensor.

    Returns:
        An `int32` tensor of the given shape.
    """
    # Philox numbers its output blocks with a counter of 128 bits. The lower
    # half counts within a step and the upper half counts steps, so steps never
    # overlap. The stateless functions of TensorFlow would hash key and counter
    # again, with 50 operations per variable.
    key = np.random.SeedSequence(seed, spawn_key=(index,))
    step = tf.cast(step, tf.uint64)
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tuple(shape),
        key=tf.constant(key.generate_state(1, np.uint64)),
        counter=tf.stack([tf.zeros_like(step), step]),
        alg=PHILOX,
        dtype=tf.int32,
    )


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Returns a NumPy generator for one sample.

    Args:
        seed: Selects the sample; any integer from 0 on.
        *stream: Integers that separate the uses within a sample.
    """
    return np.random.default_rng(sequence(seed, *stream))


def sequence(seed: int, *stream: int) -> np.random.SeedSequence:
    """Returns the seed sequence of `generator`.

    Args:
        seed: Selects the sample; any integer from 0 on.
        *stream: Integers that separate the uses within a sample.
    """
    check_number("seed", seed, at_least=0, integer=True)
    return np.random.SeedSequence(int(seed), spawn_key=stream)
