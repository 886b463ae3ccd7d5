"""Random numbers of a forward pass, different on every replica."""

import math

import tensorflow as tf
from keras import ops


def gaussian_noise(uniforms):
    """Returns the normal number that belongs to each uniform number.

    Uniform numbers between -1 and 1 give the whole distribution, those
    between `-erf(k / sqrt 2)` and `erf(k / sqrt 2)` the numbers below k.
    """
    # TensorFlow's function rounds numbers close to 1, and is infinite for the
    # last of them; it is exact close to -1.
    lower = ops.erfinv(-ops.abs(uniforms))
    return -math.sqrt(2) * ops.sign(uniforms) * lower


# Left to itself, XLA takes an algorithm that needs ten times as long on a CPU,
# and so does its own function for normal numbers.
ALGORITHM = "philox"


def next_seed(seed_generator):
    """Returns the next seed of a `keras.random.SeedGenerator`.

    Replicas see different examples and would, with the same draw of the
    weights, average over fewer draws than they could.
    """
    context = tf.distribute.get_replica_context()
    replica = context.replica_id_in_sync_group if context is not None else 0
    return fold_in(seed_generator.next(), replica)


def fold_in(seed, data):
    """Returns another seed for each integer."""
    return tf.random.experimental.stateless_fold_in(seed, data, alg=ALGORITHM)


def uniform(shape, seed):
    """Returns uniform numbers between -1 and 1, none of them -1, 0 or 1."""
    bits = tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.int32, alg=ALGORITHM
    )
    return of_bits(bits)


def of_bits(bits):
    """Returns the uniform numbers that 32 random bits each stand for."""
    # The odd numbers below 2^24 are the ones that float32 can hold.
    odd = tf.bitwise.bitwise_or(tf.bitwise.right_shift(bits, 7), 1)
    return tf.cast(odd, tf.float32) * 2.0**-24


def normal(shape, seed, bound=1.0):
    """Returns standard normal numbers.

    Args:
        shape: Their shape.
        seed: Their seed.
        bound: Of the uniform numbers that they are made of; `erf(k / sqrt 2)`
            gives those smaller than k. Defaults to `1.0`, all.
    """
    return gaussian_noise(uniform(shape, seed) * bound)


def signs(shape, dtype, seed):
    """Returns numbers that are +1 or -1 with equal probability."""
    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform(
        (-(-size // 32), 1),
        seed,
        minval=None,
        maxval=None,
        dtype=tf.int32,
        alg=ALGORITHM,
    )
    bits = tf.bitwise.bitwise_and(
        tf.bitwise.right_shift(words, tf.range(32)), 1
    )
    bits = tf.reshape(tf.reshape(bits, [-1])[:size], shape)
    return tf.cast(2 * bits - 1, dtype)
