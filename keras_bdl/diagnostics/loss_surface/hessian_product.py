"""Products with the Hessian of the training loss, compiled."""

import contextlib
import math

import tensorflow as tf

from keras_bdl.diagnostics.training_loss import TrainingLoss
from keras_bdl.objectives.exact_moments import exact_moments


class HessianProduct(TrainingLoss):
    """Multiplies a vector by the Hessian, batch by batch.

        H v = sum_b (n_b / N) d/dw (g_b' v)                               (1)

    with g_b the gradient of batch b and n_b its examples.
    """

    def over(self, data, vector):
        """Returns (1), a vector of float64.

        Args:
            data: `TrainingData`.
            vector: Of NumPy, with an entry for each trainable weight.
        """
        vector = tf.constant(vector, "float32")
        total = tf.zeros_like(vector)
        for batch in data:
            total = self(batch, vector, total)
        return total.numpy().astype("float64") / data.examples

    def _step(self, batch, vector, total):
        variables = [v.value for v in self.model.trainable_variables]
        sizes = [math.prod(v.shape) for v in variables]
        parts = tf.split(vector, sizes)
        # Without training, statistics are constants.
        moments = exact_moments if self._training else contextlib.nullcontext
        with moments(), tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                found = self.forward(batch)
                loss = found.loss + found.penalty
            gradients = inner.gradient(
                loss, variables, unconnected_gradients="zero"
            )
            product = tf.add_n(
                [
                    tf.reduce_sum(
                        tf.reshape(tf.cast(g, "float32"), [-1]) * part
                    )
                    for g, part in zip(gradients, parts, strict=True)
                ]
            )
        columns = outer.gradient(
            product, variables, unconnected_gradients="zero"
        )
        column = tf.concat(
            [tf.reshape(tf.cast(c, "float32"), [-1]) for c in columns], 0
        )
        return total + found.examples * column  # (1)
