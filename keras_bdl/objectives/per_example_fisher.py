"""The mean square of the gradients of single examples."""

import keras
import tensorflow as tf

from keras_bdl.curvature.captured_pass import CapturedPass
from keras_bdl.objectives.hessian_diagonal import HessianDiagonal


@keras.saving.register_keras_serializable(package="keras_bdl")
class PerExampleFisher(HessianDiagonal):
    """Takes the empirical Fisher information for the second derivative.

        h = (1/n) sum_i g_i^2                                             (1)

    with g_i the gradient of the loss of example i, of all n at once: see
    `keras_bdl.curvature.second_moments`. Without `sample_weight`, which counts
    examples here, and without BatchNorm, it is `SquaredGradient` of groups of
    one example, without the loop over them.

    Args:
        fallback: Whether layers that `keras_bdl.curvature` has no rule for
            are differentiated example by example, which is slow. Defaults to
            `False`, where they are an error.
    """

    def __init__(self, fallback: bool = False):
        self.fallback = fallback

    def __call__(self, forward, values):
        """Returns the outcome of a batch, and (1)."""
        x, y, sample_weight = forward.data
        run = CapturedPass(
            forward.model,
            x,
            y,
            sample_weight,
            values,
            True,
            None,
            forward.gradient_scale,
            self.fallback,
        )
        _, shares = run.gradients_and_squares()
        # Of the mean over all replicas, and (1) is that of this one.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        squares = [replicas * share for share in shares]  # (1)
        return forward.outcome(run.loss, run.y_pred, run.penalties), squares

    def get_config(self):
        """Returns all arguments."""
        return {"fallback": self.fallback}
