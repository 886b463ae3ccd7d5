"""Normal numbers, and samples of all weights of a model at once."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl._backend import compile_part
from keras_bdl._backend import pays_to_compile
from keras_bdl._random._forward_pass_noise import gaussian_noise
from keras_bdl._random._forward_pass_noise import of_bits
from keras_bdl._random._keyed_noise import PHILOX

# Streams of random numbers of one seed.
TRAINING = 0
EVALUATION = 1

# XLA takes 50 milliseconds for each tensor. With more tensors than this, XLA
# compiles only the noise, which is one tensor.
_FEW_TENSORS = 8

# Number of blocks of random numbers that one replica may use.
_BLOCKS = 2**40


def random_bits(
    size: int, *, seed: int, stream: int, draw: int, step: Any = 0
) -> tf.Tensor:
    """Returns 32 random bits for each weight, a pure function of its key.

    In training, every replica has its own bits; in evaluation, all replicas
    share them. A resumed run has the same bits as an uninterrupted one. The
    bits do not depend on XLA.

    Args:
        size: Number of weights.
        seed: The seed of the optimizer.
        stream: `TRAINING` or `EVALUATION`.
        draw: Index of the sample.
        step: The iteration, an integer tensor. Defaults to `0`.
    """
    key = np.random.SeedSequence(seed, spawn_key=(stream, draw))
    replica = 0
    context = tf.distribute.get_replica_context()
    if stream == TRAINING and context is not None:
        replica = context.replica_id_in_sync_group
    # Philox numbers its output blocks with a counter of 128 bits: the upper
    # half is the step, and the lower half starts with the replica.
    counter = [tf.cast(replica, tf.int64) * _BLOCKS, tf.cast(step, tf.int64)]
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=(size,),
        key=tf.constant(key.generate_state(1, np.uint64)),
        counter=tf.cast(tf.stack(counter), tf.uint64),
        alg=PHILOX,
        dtype=tf.int32,
    )


def normal_numbers(bits: tf.Tensor) -> tf.Tensor:
    """Returns standard normal numbers, one for each 32 random bits.

    Args:
        bits: Integers of any shape, such as the result of `random_bits`.
    """
    return gaussian_noise(of_bits(bits))


def split_numbers(numbers: tf.Tensor, shapes: list) -> list:
    """Returns one tensor for each shape.

    Args:
        numbers: Result of `normal_numbers`.
        shapes: List of shapes.
    """
    parts = tf.split(numbers, [math.prod(shape) for shape in shapes])
    return [tf.reshape(e, s) for e, s in zip(parts, shapes, strict=True)]


class Compilation:
    """Compiles the sampling of weights if the training step is not compiled.

    A sample takes about forty operations per weight. Without compilation, they
    take longer than an ordinary step of a dense network. The random bits stay
    outside, since XLA makes them more slowly.

    Keras does not track this plain object, so the compiled functions are not
    part of the state of an optimizer or objective.
    """

    def __init__(self):
        self._functions: dict[Callable, Callable] = {}

    def normal_numbers(self, bits: tf.Tensor) -> tf.Tensor:
        """Returns `normal_numbers(bits)`.

        Args:
            bits: Result of `random_bits`. Their number decides whether
                compiling pays.
        """
        if not _worth_compiling(bits):
            return normal_numbers(bits)
        return self._compiled(normal_numbers)(bits)

    def draw(
        self, function: Callable, bits: tf.Tensor, means: list, *args
    ) -> Any:
        """Returns `function(normal_numbers(bits), means, *args)`.

        Args:
            function: `gaussian_draw` or `gaussian_draw_and_score`.
            bits: Result of `random_bits`. Their number decides whether
                compiling pays.
            means: The first list of tensors. Its length decides whether XLA
                compiles `function`, too.
            *args: Further arguments.
        """
        # In one program with the noise, XLA would make the noise again for each
        # result of the function.
        noise = self.normal_numbers(bits)
        if len(means) > _FEW_TENSORS or not _worth_compiling(bits):
            return function(noise, means, *args)
        return self._compiled(function)(noise, means, *args)

    def _compiled(self, function):
        if function not in self._functions:
            self._functions[function] = compile_part(function)
        return self._functions[function]


def _worth_compiling(bits):
    return pays_to_compile(bits.shape[0])


def gaussian_draw(
    noise: tf.Tensor, means: list, curvatures: list, priors: list, factor: Any
) -> list:
    """Returns weights drawn from independent Gaussians.

        sigma^2 = factor / (curvature + prior)                            (1)
        w = mean + sigma eps,   eps ~ N(0, I)                             (2)

    Args:
        noise: Standard normal numbers, one for each weight.
        means: List of tensors.
        curvatures: List of tensors.
        priors: List of numbers.
        factor: A number.

    Returns:
        A list of `w`.
    """
    parts = _noise_and_stddev(noise, means, curvatures, priors, factor)
    return [
        mean + stddev * eps  # (2)
        for mean, eps, stddev in zip(means, *parts, strict=True)
    ]


def gaussian_draw_and_score(
    noise: tf.Tensor, means: list, curvatures: list, priors: list, factor: Any
) -> tuple[list, list]:
    """Returns two lists, `w` and `eps / sigma` of `gaussian_draw`.

    Args:
        noise: Standard normal numbers, one for each weight.
        means: List of tensors.
        curvatures: List of tensors.
        priors: List of numbers.
        factor: A number.
    """
    noises, stddevs = _noise_and_stddev(
        noise, means, curvatures, priors, factor
    )
    draws, scores = [], []
    for mean, eps, stddev in zip(means, noises, stddevs, strict=True):
        draws.append(mean + stddev * eps)  # (2)
        scores.append(eps / stddev)
    return draws, scores


def _noise_and_stddev(noise, means, curvatures, priors, factor):
    noises = split_numbers(noise, [m.shape for m in means])
    stddevs = [
        ops.sqrt(ops.cast(factor, s.dtype) / (s + ops.cast(prior, s.dtype)))
        for s, prior in zip(curvatures, priors, strict=True)  # (1)
    ]
    noises = [ops.cast(e, m.dtype) for e, m in zip(noises, means, strict=True)]
    return noises, stddevs
