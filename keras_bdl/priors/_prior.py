"""The base class of all priors."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._data._dataset_size import guard_loss_of_step
from keras_bdl.distributions._weight_distribution import WeightDistribution


class Prior(ShowsArguments, keras.regularizers.Regularizer):
    """The base class of priors of weights.

    A prior is a `kernel_regularizer`, or the `prior` of a sampler, an objective
    or a variational layer. As a regularizer it adds

        -log p(w) / N                                                     (1)

    to a loss that is a mean over N examples. If this loss is the mean negative
    log-likelihood, N times the sum of both is the negative log of the joint
    density of data and weights, with all constants. As `prior` of a sampler,
    the prior uses the N of the sampler.

    A subclass defines `log_prob` and `sample` for a whole variable. Both may
    depend on the shape: the last axis counts the output features, as in the
    kernels of Keras.

    Args:
        dataset_size: N in (1), the number of training examples. Defaults to
            `None`: `keras_bdl.Model.fit` counts them.
    """

    def __init__(self, *, dataset_size: int | None = None):
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each independent part of a variable.

        A part is a weight or a group of weights, so the result may have fewer
        entries than the variable. `log p` is the sum of the entries.

        Args:
            x: The variable.
        """
        raise NotImplementedError

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns the expected `log_prob`, or `None` without a closed form.

        If the result is `None`, variational layers compute `log_prob` of one
        draw.

        Args:
            q: A `keras_bdl.extend.WeightDistribution`.
            noise: A function that returns the noise of a draw of q.
        """
        del q, noise
        return None

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable.

        Args:
            shape: Shape of the variable.
            seed: A seed of `keras.random`. Defaults to `None`.
        """
        raise NotImplementedError

    def __call__(self, x: Any) -> Any:
        """Returns the negative log density divided by N, (1)."""
        guard_loss_of_step(self.dataset_size)
        log_prob = ops.sum(self.log_prob(ops.cast(x, "float32")))
        return -log_prob / self.dataset_size.value()

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {"dataset_size": self.dataset_size.given}
