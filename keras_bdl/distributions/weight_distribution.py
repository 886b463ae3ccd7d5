"""The base class of the distributions of variational layers."""

import numpy as np
from keras import ops

# In the gradient, the noise is divided out of the result again. Otherwise XLA
# would make all random numbers a second time, or keep more of them.


@ops.custom_gradient
def perturbed(mean, stddev, noise):
    """Returns `mean + stddev noise`; the noise counts as a constant."""
    result = mean + stddev * noise

    def gradient(upstream):
        return upstream, upstream * ((result - mean) / stddev), None

    return result, gradient


@ops.custom_gradient
def perturbation(stddev, noise):
    """Returns `stddev noise`; the noise counts as a constant."""
    result = stddev * noise

    def gradient(upstream):
        return upstream * (result / stddev), None

    return result, gradient


class WeightDistribution:
    """A distribution of one tensor of weights, `w = mean + stddev noise`.

    A subclass makes the noise out of normal numbers, so that a layer can
    draw those of all its tensors at once. It may be the distribution that a
    layer learns, and the prior of another one.

    Args:
        mean: Means, a float32 tensor.
        stddev: Scales of the noise, of the same shape.
    """

    def __init__(self, mean, stddev):
        self.mean = mean
        self.stddev = stddev

    @classmethod
    def num_normals(cls, size: int) -> int:
        """Returns how many normal numbers a draw of `size` weights needs."""
        raise NotImplementedError

    @classmethod
    def noise(cls, normals, shape):
        """Returns the noise of one draw.

        Args:
            normals: Standard normal numbers, as many as `num_normals` says.
            shape: Shape of the noise.
        """
        raise NotImplementedError

    @property
    def variance(self):
        """The variance of each weight."""
        raise NotImplementedError

    def log_prob(self, x):
        """Returns the log density of each independent part of a tensor."""
        raise NotImplementedError

    def negative_entropy(self):
        """Returns terms, one for each weight, whose sum is `E log q(w)`."""
        raise NotImplementedError

    def lengths(self, noise):
        """Returns what lengths the noise has in the direction of a draw.

        Args:
            noise: The noise of a draw.

        Returns:
            A tensor of the shape of the noise, the numbers to multiply it
            with, and their probabilities, two arrays. Noise of the opposite
            direction is as likely.
        """
        return noise, np.ones(1, "float32"), np.ones(1, "float32")

    def expected_distance(self, point):
        """Returns `E |w_i - point|`, or `None` if it is not known."""
        del point

    def expected_log_prob(self, q, noise):
        """Returns `E log p(w)` under q, p this distribution, or `None`.

        As `keras_bdl.priors.Prior.expected_log_prob`.
        """
        del q, noise

    def draw(self, noise):
        """Returns the weights that belong to some noise."""
        return perturbed(self.mean, self.stddev, noise)

    def perturbation(self, noise):
        """Returns these weights less their means."""
        return perturbation(self.stddev, noise)

    def kl_divergence(self, prior, noise):
        """Returns `KL(q || p) = E log q(w) - E log p(w)` in nats.

        The first part is closed. The second is, where `prior` knows the
        expectation of its log density under this distribution; otherwise it
        is taken at one draw.

        Args:
            prior: p, an object with `log_prob`.
            noise: A function that returns the noise of that draw.
        """
        expected = getattr(prior, "expected_log_prob", None)
        log_prior = expected(self, noise) if expected else None
        if log_prior is None:
            log_prior = prior.log_prob(self.draw(noise()))
        entropy = self.negative_entropy()
        if entropy.shape == log_prior.shape:
            return ops.sum(entropy - log_prior)
        return ops.sum(entropy) - ops.sum(log_prior)
