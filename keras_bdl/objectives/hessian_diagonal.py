"""What `TaylorVI` knows of the second derivatives."""

import keras

from keras_bdl.shows_arguments import ShowsArguments


class HessianDiagonal(ShowsArguments):
    """Base of the estimates of the diagonal of a Hessian.

    A subclass is called under a tape, and its result is differentiated again:
    it must be made of operations that have a gradient.

    Attributes:
        depends_on_group: Whether the result is another for two halves of a
            batch than for the whole.
    """

    depends_on_group = False

    def __call__(self, forward, values):
        """Returns the outcome of a batch, and the diagonal.

        Args:
            forward: A function of `values` that returns an object with the
                mean negative log-likelihood `nll`. It has `with_gradient`,
                too, which returns that object and the gradient of `nll`, and
                the attributes `examples`, a number, and `model`.
            values: A tensor for each of `model.trainable_variables`.

        Returns:
            What `forward` returned, and a list of tensors of the shapes of
            `values`: the second derivatives of `nll` by each weight.
        """
        raise NotImplementedError

    def get_config(self):
        """Returns every constructor argument."""
        return {}

    @classmethod
    def from_config(cls, config):
        """Returns the estimate that `get_config` described."""
        return cls(**config)


def get(estimate):
    """Returns an estimate, or the one that a config describes.

    Args:
        estimate: A `HessianDiagonal`, or a config of it.
    """
    if isinstance(estimate, dict):
        estimate = keras.saving.deserialize_keras_object(estimate)
    if not isinstance(estimate, HessianDiagonal):
        raise ValueError(
            "`hessian_diagonal` must be `None` or an estimate of "
            "`keras_bdl.objectives`, such as `SquaredGradient()`. "
            f"Received: hessian_diagonal={estimate!r}"
        )
    return estimate
