"""What the distributions of variational layers have in common."""

from keras import ops


class WeightDistribution:
    """A distribution of one tensor of weights, `w = mean + stddev noise`.

    A subclass makes the noise out of standard normal numbers, so that a layer
    can draw those of all its tensors at once, and knows its negative entropy.

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
            normals: As many standard normal numbers as `num_normals` says.
            shape: Shape of the noise.
        """
        raise NotImplementedError

    @property
    def variance(self):
        """The variance of each weight."""
        raise NotImplementedError

    def log_prob(self, x):
        """Returns the log density, constants included."""
        raise NotImplementedError

    def negative_entropy(self):
        """Returns `E log q(w)`, in closed form."""
        raise NotImplementedError

    def draw(self, noise):
        """Returns the weights that belong to some noise."""
        return self.mean + self.stddev * noise

    def kl_divergence(self, prior, noise):
        """Returns `KL(q || p) = E log q(w) - E log p(w)` in nats.

        The first part is closed. The second is, where `prior` knows the
        expectation of its log density under this distribution; otherwise it
        is taken at one draw.

        Args:
            prior: An object with `log_prob`, such as a `keras_bdl.priors`.
            noise: The noise of the draw.
        """
        expected = getattr(prior, "expected_log_prob", lambda q, noise: None)
        log_prior = expected(self, noise)
        if log_prior is None:
            log_prior = prior.log_prob(self.draw(noise))
        return self.negative_entropy() - ops.sum(log_prior)
