"""Draws of all weights of a model at once."""

import math

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl.random.counter_numbers import PHILOX
from keras_bdl.random.cpu_compilation import keras_compiles_nothing
from keras_bdl.random.replica_numbers import gaussian_noise
from keras_bdl.random.replica_numbers import of_bits

# The streams of random numbers of one seed.
TRAINING = 0
EVALUATION = 1

# Compiling takes half a second, which fewer weights save in no training.
_SMALLEST_SIZE = 2**14

# Blocks of random numbers of one replica.
_BLOCKS = 2**40


def random_bits(size: int, *, seed: int, stream: int, draw: int, step=0):
    """Returns 32 random bits for each weight, a pure function of its key.

    Where replicas train, each has bits of its own; where they evaluate, they
    all have the same. A run that goes on from a file has those that it would
    have had. The bits do not depend on XLA.

    Args:
        size: How many integers.
        seed: The seed of the optimizer.
        stream: `TRAINING` or `EVALUATION`.
        draw: Which draw, an integer.
        step: The iteration, an integer tensor. Defaults to `0`.
    """
    key = np.random.SeedSequence(seed, spawn_key=(stream, draw))
    replica = 0
    context = tf.distribute.get_replica_context()
    if stream == TRAINING and context is not None:
        replica = context.replica_id_in_sync_group
    # Philox numbers the blocks of its output by a counter of 128 bits: the
    # upper half is the step, and the lower one begins with the replica.
    counter = [tf.cast(replica, tf.int64) * _BLOCKS, tf.cast(step, tf.int64)]
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=(size,),
        key=tf.constant(key.generate_state(1, np.uint64)),
        counter=tf.cast(tf.stack(counter), tf.uint64),
        alg=PHILOX,
        dtype=tf.int32,
    )


def normal_numbers(bits, shapes):
    """Returns standard normal numbers, a tensor for each shape.

    Args:
        bits: What `random_bits` returned.
        shapes: List of shapes, with as many entries in all.
    """
    noise = gaussian_noise(of_bits(bits))
    parts = tf.split(noise, [math.prod(shape) for shape in shapes])
    return [tf.reshape(e, s) for e, s in zip(parts, shapes, strict=True)]


class Compilation:
    """Compiles the draw of the weights where the training step is not.

    On a machine with nothing but CPUs, Keras does not compile training steps.
    A draw is some forty operations on each weight: one by one, they take
    longer than an ordinary step of a dense network. The bits themselves XLA
    would make more slowly, so they are made outside.

    A plain object, so that the function is no part of what owns it.
    """

    def __init__(self):
        self._functions = {}

    def run(self, function, bits, *args):
        """Returns `function(bits, *args)`.

        Args:
            function: Pure, of tensors and nested lists of them.
            bits: A tensor, whose size says whether compiling is worth it.
            *args: All others.
        """
        if not _worth_compiling(bits):
            return function(bits, *args)
        if function not in self._functions:
            self._functions[function] = tf.function(
                function, jit_compile=True, autograph=False
            )
        return self._functions[function](bits, *args)


def _worth_compiling(bits):
    return (
        bits.shape[0] >= _SMALLEST_SIZE
        and not tf.executing_eagerly()
        and not tf.distribute.has_strategy()
        and keras_compiles_nothing()
    )


def gaussian_draw(bits, means, curvatures, priors, factor):
    """Draws weights from independent Gaussians.

        sigma^2 = factor / (curvature + prior)                            (1)
        w = mean + sigma eps,   eps ~ N(0, I)                             (2)

    Args:
        bits: What `random_bits` returned, 32 for each weight.
        means: List of tensors.
        curvatures: List of tensors.
        priors: List of numbers.
        factor: A number.

    Returns:
        A list of `w`.
    """
    parts = _noise_and_stddev(bits, means, curvatures, priors, factor)
    return [
        mean + stddev * eps  # (2)
        for mean, eps, stddev in zip(means, *parts, strict=True)
    ]


def gaussian_draw_and_score(bits, means, curvatures, priors, factor):
    """Returns `w` and `eps / sigma`, two lists, see `gaussian_draw`.

    Args:
        bits: See `gaussian_draw`, as all others.
        means: List of tensors.
        curvatures: List of tensors.
        priors: List of numbers.
        factor: A number.
    """
    noises, stddevs = _noise_and_stddev(bits, means, curvatures, priors, factor)
    draws, scores = [], []
    for mean, eps, stddev in zip(means, noises, stddevs, strict=True):
        draws.append(mean + stddev * eps)  # (2)
        scores.append(eps / stddev)
    return draws, scores


def _noise_and_stddev(bits, means, curvatures, priors, factor):
    noises = normal_numbers(bits, [m.shape for m in means])
    stddevs = [
        ops.sqrt(ops.cast(factor, s.dtype) / (s + ops.cast(prior, s.dtype)))
        for s, prior in zip(curvatures, priors, strict=True)  # (1)
    ]
    noises = [ops.cast(e, m.dtype) for e, m in zip(noises, means, strict=True)]
    return noises, stddevs
