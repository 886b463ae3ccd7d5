"""What all priors have in common."""

import keras
from keras import ops

from keras_bdl.arguments import ShowsArguments
from keras_bdl.data.dataset_size import DatasetSize


class Prior(ShowsArguments, keras.regularizers.Regularizer):
    """Base of the distributions of weights before any data were seen.

    As a `kernel_regularizer` it adds to a loss that is a mean over N examples

        -log p(w) / N                                                     (1)

    so that N times the loss is the negative log of the joint density. Its
    constants are kept. As `prior=` of a sampler it needs no N of its own.

    A subclass defines `log_prob` and `sample` for a whole variable, and may
    look at its shape: the last axis counts the output features, as it does in
    the kernels of Keras.

    Args:
        dataset_size: N in (1), the number of training examples. Defaults to
            `None`: counted by `keras_bdl.Model.fit`.
    """

    def __init__(self, dataset_size: int | None = None):
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)

    def log_prob(self, x):
        """Returns the log density of each independent part of a variable.

        A part is a weight, or a group of weights: the result may have fewer
        entries than the variable, and `log p` is their sum.
        """
        raise NotImplementedError

    def expected_log_prob(self, q, noise):
        """Returns `log_prob`, averaged over a distribution, or `None`.

        Variational layers take `log_prob` at a draw where this is `None`.

        Args:
            q: A `keras_bdl.distributions.WeightDistribution`.
            noise: A function that returns the noise of a draw of q.
        """
        del q, noise

    def sample(self, shape, seed=None):
        """Returns a draw of a variable of the given shape.

        `seed` is that of `keras.random`.
        """
        raise NotImplementedError

    def __call__(self, x):
        """Returns (1)."""
        log_prob = ops.sum(self.log_prob(ops.cast(x, "float32")))
        return -log_prob / self.dataset_size.value()

    def get_config(self):
        """Returns all arguments."""
        return {"dataset_size": self.dataset_size.given}
