"""The base class of the distributions of variational layers."""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Density

# The gradients of the next two functions compute the noise from the result.
# Otherwise XLA would draw all random numbers again, or keep more of them in
# memory.


@ops.custom_gradient
def perturbed(mean, stddev, noise):
    """Returns `mean + stddev noise`. The noise gets no gradient."""
    result = mean + stddev * noise

    def gradient(upstream):
        return upstream, upstream * ((result - mean) / stddev), None

    return result, gradient


@ops.custom_gradient
def perturbation(stddev, noise):
    """Returns `stddev noise`. The noise gets no gradient."""
    result = stddev * noise

    def gradient(upstream):
        return upstream * (result / stddev), None

    return result, gradient


class WeightDistribution:
    """The distribution of one tensor of weights, `w = mean + stddev noise`.

    A subclass computes the noise from standard normal numbers, so a layer can
    draw these numbers for all its tensors at once. A distribution may be the
    posterior that a layer learns, or a prior.

    Args:
        mean: Means, a float32 tensor.
        stddev: Scales of the noise, of the same shape.
    """

    def __init__(self, mean: ArrayLike, stddev: ArrayLike):
        self.mean = mean
        self.stddev = stddev

    @classmethod
    def num_normals(cls, size: int) -> int:
        """Returns the number of standard normal numbers that a draw needs.

        Args:
            size: Number of weights.
        """
        raise NotImplementedError

    @classmethod
    def noise(cls, normals: ArrayLike, shape: Sequence[int]) -> ArrayLike:
        """Returns the noise of one draw.

        Args:
            normals: Standard normal numbers, `num_normals` of them.
            shape: Shape of the noise.
        """
        raise NotImplementedError

    @property
    def variance(self) -> ArrayLike:
        """The variance of each weight."""
        raise NotImplementedError

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density: one number for each independent part.

        Args:
            x: Values of the weights.
        """
        raise NotImplementedError

    def negative_entropy(self) -> ArrayLike:
        """Returns one term for each weight; their sum is `E log q(w)`."""
        raise NotImplementedError

    def lengths(
        self, noise: ArrayLike
    ) -> tuple[ArrayLike, np.ndarray, np.ndarray]:
        """Returns the possible lengths of noise along the direction of a draw.

        Noise in the opposite direction has the same probabilities.

        Args:
            noise: The noise of a draw.

        Returns:
            A tensor in the shape of the noise, an array of factors of this
            tensor, and an array of the probabilities of the factors.
        """
        return noise, np.ones(1, "float32"), np.ones(1, "float32")

    def expected_distance(self, point: float) -> ArrayLike | None:
        """Returns `E |w_i - point|`, or `None` without a closed form.

        Args:
            point: A number.
        """
        del point
        return None

    def expected_log_prob(
        self, q: "WeightDistribution", noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns `E log p(w)` under q, or `None` without a closed form.

        This distribution is p. `keras_bdl.extend.Prior` has the same method.

        Args:
            q: The distribution of the weights.
            noise: A function that returns the noise of a draw of q.
        """
        del q, noise
        return None

    def draw(self, noise: ArrayLike) -> ArrayLike:
        """Returns the weights for given noise.

        Args:
            noise: The noise of a draw.
        """
        return perturbed(self.mean, self.stddev, noise)

    def perturbation(self, noise: ArrayLike) -> ArrayLike:
        """Returns the weights for given noise, minus their means.

        Args:
            noise: The noise of a draw.
        """
        return perturbation(self.stddev, noise)

    def kl_divergence(
        self, prior: Density, noise: Callable[[], ArrayLike]
    ) -> ArrayLike:
        """Returns `KL(q || p) = E log q(w) - E log p(w)` in nats.

        The first term has a closed form. The second term is the result of
        `prior.expected_log_prob`. If the prior has no such method, or if the
        result is `None`, one draw estimates the second term.

        Args:
            prior: p, an object with `log_prob`.
            noise: A function that returns the noise of a draw of this
                distribution.
        """
        expected = getattr(prior, "expected_log_prob", None)
        log_prior = expected(self, noise) if expected else None
        if log_prior is None:
            log_prior = prior.log_prob(self.draw(noise()))
        entropy = self.negative_entropy()
        if entropy.shape == log_prior.shape:
            return ops.sum(entropy - log_prior)
        return ops.sum(entropy) - ops.sum(log_prior)
