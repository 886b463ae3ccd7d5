"""An unbiased estimate of the diagonal of the true Hessian."""

import math

import keras
import tensorflow as tf

from keras_bdl.arguments import check_number
from keras_bdl.arguments import check_seed
from keras_bdl.objectives.hessian_diagonal import HessianDiagonal
from keras_bdl.random.weight_noise import TRAINING
from keras_bdl.random.weight_noise import random_bits


@keras.saving.register_keras_serializable(package="keras_bdl")
class Hutchinson(HessianDiagonal):
    """Estimates the diagonal of the Hessian H by random signs.

        h = z * (H z),   z_i = -1 or 1, as likely                         (1)

    The expectation is the diagonal, whatever the noise of the data. Where H
    is not positive, neither is the estimate, and weights are drawn to where
    the Hessian of a network is most negative: for models whose loss is
    convex, or for variances that are small. The gradient needs third
    derivatives: a step takes four times as long as with `SquaredGradient`.

    Args:
        probes: How many products are averaged. Defaults to `1`.
        seed: Seed of the signs. Defaults to `0`.
    """

    def __init__(self, probes: int = 1, seed: int = 0):
        check_number("probes", probes, at_least=1, integer=True)
        check_seed(seed)
        self.probes = probes
        self.seed = seed

    def __call__(self, forward, values):
        """Returns the outcome of a batch, and (1)."""
        diagonals = []
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(values)
            outcome, gradients = forward.with_gradient(values)
            signs = [self._signs(forward, k) for k in range(self.probes)]
            products = [
                tf.add_n(
                    [
                        tf.reduce_sum(g * tf.cast(z, g.dtype))
                        for g, z in zip(gradients, of_probe, strict=True)
                    ]
                )
                for of_probe in signs
            ]
        for product, of_probe in zip(products, signs, strict=True):
            columns = tape.gradient(
                product, values, unconnected_gradients="zero"
            )
            diagonals.append(
                [
                    tf.cast(z, c.dtype) * c  # (1)
                    for z, c in zip(of_probe, columns, strict=True)
                ]
            )
        return outcome, [
            tf.add_n(of_variable) / self.probes
            for of_variable in zip(*diagonals, strict=True)
        ]

    def _signs(self, forward, probe):
        shapes = [v.shape for v in forward.variables]
        sizes = [math.prod(shape) for shape in shapes]
        bits = random_bits(
            sum(sizes),
            seed=self.seed,
            stream=TRAINING,
            draw=probe,
            step=forward.model.optimizer.iterations,
        )
        signs = tf.cast(1 - 2 * tf.bitwise.bitwise_and(bits, 1), "float32")
        return [
            tf.reshape(z, shape)
            for z, shape in zip(tf.split(signs, sizes), shapes, strict=True)
        ]

    def get_config(self):
        """Returns all arguments."""
        return {"probes": self.probes, "seed": self.seed}
