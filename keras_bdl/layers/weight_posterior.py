"""The distribution of one tensor of weights of a layer."""

import math

import tensorflow as tf


class WeightPosterior:
    """The variables of one distribution, and its prior.

    Args:
        name: Of the tensor: `"kernel"`, `"embeddings"` or `"bias"`.
        family: A `WeightDistribution`.
        mean: The variable of the means.
        rho: The variable of `softplus^-1(stddev)`.

    Attributes:
        prior: What `keras_bdl.priors.get` returns, or a `StoredPrior`.
        stored: The variables of a `StoredPrior`, its mean and its scale.
    """

    def __init__(self, name, family, mean, rho):
        self.name = name
        self.family = family
        self.mean = mean
        self.rho = rho
        self.prior = None
        self.stored = ()
        self.shape = tuple(mean.shape)
        self.num_normals = family.num_normals(math.prod(self.shape))

    def read(self):
        """Returns the tensors that all variables hold now."""
        variables = (self.mean, self.rho, *self.stored)
        return [tf.convert_to_tensor(v) for v in variables]

    def distribution(self, tensors=None):
        """Returns the distribution that `read` describes."""
        mean, rho, *_ = tensors or self.read()
        return self.family(mean, tf.nn.softplus(rho))

    def prior_distribution(self, tensors):
        """Returns the prior that `read` describes, with `log_prob`."""
        _, _, *stored = tensors
        return self.prior.distribution(*stored) if stored else self.prior
