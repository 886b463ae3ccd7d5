"""Random numbers as functions of a seed, a step, a replica and a sample.

All noise of the package comes from the counter-based generator Philox: that of
samplers (`sampler_bits`), of samples of all weights (`random_bits`) and of
forward passes (`normal`, `uniform`, `signs`). The same key gives the same bits
with and without XLA and after a restart. Philox numbers its output blocks with
a counter of 128 bits, here two 64-bit integers, the lower half first.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._backend import call_shared
from keras_bdl._backend import num_replicas
from keras_bdl._backend import philox
from keras_bdl._backend import replica_id
from keras_bdl._backend import split
from keras_bdl._backend import words

# Streams of `random_bits`.
TRAINING = 0
EVALUATION = 1

# Number of blocks of random numbers that one replica may use.
_BLOCKS_OF_REPLICA = 2**40
# Number of blocks of a stream of a forward pass.
_BLOCKS_OF_STREAM = 2**44
# This block of a seed, and those behind it, become new seeds.
_NEW_SEEDS = 2**60


def sampler_bits(shape: Any, *, seed: int, index: int, step: Any) -> Any:
    """Returns 32 random bits for each weight of a variable of a sampler.

    All replicas have the same bits: mirrored copies of a variable stay equal.
    With another `jit_compile`, or on another device, the steps that follow from
    the bits are equal up to rounding.
    """
    key = np.random.SeedSequence(seed, spawn_key=(index,))
    # The upper half of the counter counts steps, so steps never overlap.
    step = ops.cast(step, "uint64")
    counter = ops.stack([ops.zeros_like(step), step])
    return philox(shape, key.generate_state(1, np.uint64), counter)


def random_bits(
    size: int, *, seed: int, stream: int, draw: int, step: Any = 0
) -> Any:
    """Returns 32 random bits for each weight, for a sample of all weights.

    In the stream `TRAINING`, every replica has its own bits; in `EVALUATION`,
    all replicas share them.
    """
    key = np.random.SeedSequence(seed, spawn_key=(stream, draw))
    replica = replica_id() if stream == TRAINING else 0
    first_block = ops.cast(replica, "int64") * _BLOCKS_OF_REPLICA
    counter = ops.stack([first_block, ops.cast(step, "int64")])
    return philox(
        (size,), key.generate_state(1, np.uint64), ops.cast(counter, "uint64")
    )


def normal_numbers(bits: Any) -> Any:
    """Returns one standard normal number for each 32 random bits."""
    return gaussian_noise(of_bits(bits))


def draw_numbers(bits: Any) -> Any:
    """Returns `normal_numbers`, compiled by XLA where that saves time.

    The random bits stay outside, since XLA makes them more slowly.
    """
    return call_shared(normal_numbers, bits, compiled=True)


def split_numbers(numbers: Any, shapes: list) -> list:
    """Returns one tensor for each shape, from one vector of numbers."""
    parts = split(numbers, [math.prod(shape) for shape in shapes])
    return [ops.reshape(e, s) for e, s in zip(parts, shapes, strict=True)]


def next_seed(seed_generator: keras.random.SeedGenerator) -> Any:
    """Returns the next seed of a layer, a different seed on every replica.

    With one seed for all replicas, a step would average over fewer samples of
    the weights.
    """
    seed = seed_generator.next()
    return seed if num_replicas() == 1 else fold_in(seed, replica_id())


def fold_in(seed: Any, data: Any) -> Any:
    """Returns a different seed for each integer from 0 to 2^31."""
    if ops.is_tensor(data):
        data = ops.cast(data, "uint64")
    return _random_integers((2,), seed, data + _NEW_SEEDS, "int64")


def uniform(shape: Any, seed: Any, stream: int = 0) -> Any:
    """Returns uniform numbers between -1 and 1, never -1, 0 or 1.

    `stream` selects one of `2**16` streams of numbers of the seed.
    """
    bits = _random_integers(shape, seed, stream * _BLOCKS_OF_STREAM)
    return of_bits(bits)


def normal(shape: Any, seed: Any, stream: int = 0, bound: float = 1.0) -> Any:
    """Returns standard normal numbers, truncated if `bound` is below 1.

    `bound = erf(k / sqrt 2)` truncates the numbers at -k and k.
    """
    uniforms = uniform(shape, seed, stream)
    return gaussian_noise(uniforms if bound == 1.0 else uniforms * bound)


def signs(shape: Any, dtype: Any, seed: Any, stream: int = 0) -> Any:
    """Returns +1 or -1 with equal probability."""
    size = ops.prod(shape)
    shape_of_words = (-(-size // 32), 1)
    bits = _random_integers(shape_of_words, seed, stream * _BLOCKS_OF_STREAM)
    bits = ops.bitwise_and(ops.bitwise_right_shift(bits, ops.arange(32)), 1)
    bits = ops.reshape(ops.reshape(bits, [-1])[:size], shape)
    return ops.cast(2 * bits - 1, dtype)


def gaussian_noise(uniforms: Any) -> Any:
    """Returns standard normal numbers as a function of uniform numbers."""
    # `erfinv` of TensorFlow rounds close to 1 and is infinite for the last
    # number below 1. Close to -1, `erfinv` is exact.
    lower = ops.erfinv(-ops.abs(uniforms))
    return -math.sqrt(2) * ops.sign(uniforms) * lower


def of_bits(bits: Any) -> Any:
    """Returns one uniform number between -1 and 1 for each 32 random bits."""
    # float32 holds all odd numbers below 2^24.
    odd = ops.bitwise_or(ops.bitwise_right_shift(bits, 7), 1)
    return ops.cast(odd, "float32") * 2.0**-24


def _random_integers(
    shape: Any, seed: Any, first_block: Any, dtype: Any = "int32"
) -> Any:
    """Returns integers of a seed of Keras, from a block of the seed on."""
    # The stateless functions of TensorFlow would hash the seed, with 40
    # operations. The default algorithm of XLA takes ten times as long on a CPU.
    key, upper = ops.split(words(seed), 2)
    if ops.is_tensor(first_block):
        first_block = ops.reshape(first_block, [1])
    else:
        first_block = ops.convert_to_tensor([first_block], "uint64")
    counter = ops.concatenate([first_block, upper], axis=0)
    return philox(shape, key, counter, dtype)
