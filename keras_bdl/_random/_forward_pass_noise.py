"""Random numbers of a forward pass, different on every replica."""

import math
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl._random._keyed_noise import PHILOX


def gaussian_noise(uniforms: tf.Tensor) -> tf.Tensor:
    """Returns standard normal numbers as a function of uniform numbers.

    Args:
        uniforms: Numbers between -1 and 1. Numbers between `-erf(k / sqrt 2)`
            and `erf(k / sqrt 2)` give normal numbers between -k and k.
    """
    # `erfinv` of TensorFlow rounds close to 1 and is infinite for the last
    # number below 1. Close to -1, `erfinv` is exact.
    lower = ops.erfinv(-ops.abs(uniforms))
    return -math.sqrt(2) * ops.sign(uniforms) * lower


# Philox numbers its output blocks with a counter of 128 bits. The upper half is
# a part of the seed, and the lower half counts the blocks of a tensor. A stream
# of numbers has this many blocks.
_STREAM = 2**44
# This block, and those behind it, become new seeds.
_NEW_SEEDS = 2**60


def next_seed(seed_generator: keras.random.SeedGenerator) -> tf.Tensor:
    """Returns the next seed, a different seed on every replica.

    With one seed for all replicas, a step would average over fewer samples of
    the weights.

    Args:
        seed_generator: The generator of the layer.
    """
    seed = seed_generator.next()
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return seed
    context = tf.distribute.get_replica_context()
    replica = context.replica_id_in_sync_group if context is not None else 0
    return fold_in(seed, replica)


def fold_in(seed: Any, data: Any) -> tf.Tensor:
    """Returns a different seed for each integer.

    Args:
        seed: A seed, two integers.
        data: An integer from 0 to 2^31.
    """
    if tf.is_tensor(data):
        data = tf.cast(data, tf.uint64)
    return _random_integers((2,), seed, tf.int64, data + _NEW_SEEDS)


def uniform(shape: Any, seed: Any, stream: int = 0) -> tf.Tensor:
    """Returns uniform numbers between -1 and 1, never -1, 0 or 1.

    Args:
        shape: Shape of the result.
        seed: The seed.
        stream: Selects one of `2**16` streams of numbers of the seed. Defaults
            to `0`.
    """
    bits = _random_integers(shape, seed, tf.int32, stream * _STREAM)
    return of_bits(bits)


def _random_integers(shape, seed, dtype, first_block):
    # The stateless functions of TensorFlow would hash the seed, with 40
    # operations. The default algorithm of XLA takes ten times as long on a CPU.
    words = tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    key, upper = tf.split(words, 2)
    if tf.is_tensor(first_block):
        first_block = tf.reshape(first_block, [1])
    else:
        first_block = tf.constant([first_block], tf.uint64)
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape,
        key=key,
        counter=tf.concat([first_block, upper], 0),
        alg=PHILOX,
        dtype=dtype,
    )


def of_bits(bits: tf.Tensor) -> tf.Tensor:
    """Returns one uniform number between -1 and 1 for each 32 random bits.

    Args:
        bits: Integers of 32 random bits each.
    """
    # float32 holds all odd numbers below 2^24.
    odd = tf.bitwise.bitwise_or(tf.bitwise.right_shift(bits, 7), 1)
    return tf.cast(odd, tf.float32) * 2.0**-24


def normal(
    shape: Any, seed: Any, stream: int = 0, bound: float = 1.0
) -> tf.Tensor:
    """Returns standard normal numbers, truncated if `bound` is below 1.

    Args:
        shape: Shape of the result.
        seed: The seed.
        stream: Selects one of the streams of `uniform`. Defaults to `0`.
        bound: `erf(k / sqrt 2)` truncates the numbers at -k and k. Defaults to
            `1.0`: no truncation.
    """
    uniforms = uniform(shape, seed, stream)
    return gaussian_noise(uniforms if bound == 1.0 else uniforms * bound)


def signs(shape: Any, dtype: Any, seed: Any, stream: int = 0) -> tf.Tensor:
    """Returns +1 or -1 with equal probability.

    Args:
        shape: Shape of the result.
        dtype: Dtype of the result.
        seed: The seed.
        stream: Selects one of the streams of `uniform`. Defaults to `0`.
    """
    size = tf.reduce_prod(shape)
    shape_of_words = (-(-size // 32), 1)
    words = _random_integers(shape_of_words, seed, tf.int32, stream * _STREAM)
    bits = tf.bitwise.bitwise_and(
        tf.bitwise.right_shift(words, tf.range(32)), 1
    )
    bits = tf.reshape(tf.reshape(bits, [-1])[:size], shape)
    return tf.cast(2 * bits - 1, dtype)
