"""The distribution of one tensor of weights of a layer."""

import math

from keras import ops

from keras_bdl import priors


class WeightPosterior:
    """The variables of one distribution, and its prior.

    Args:
        family: A `WeightDistribution`.
        mean: The variable of the means.
        rho: The variable of `softplus^-1(stddev)`.
        prior: What `keras_bdl.priors.get` returns.
    """

    def __init__(self, family, mean, rho, prior):
        self.family = family
        self.mean = mean
        self.rho = rho
        self.prior = priors.get(prior)
        self.shape = tuple(mean.shape)
        self.num_normals = family.num_normals(math.prod(self.shape))

    def distribution(self):
        """Returns the distribution that the variables describe now."""
        mean = ops.cast(self.mean, "float32")
        stddev = ops.softplus(ops.cast(self.rho, "float32"))
        return self.family(mean, stddev)

    def noise(self, normals):
        """Returns the noise of a draw made of `num_normals` numbers."""
        return self.family.noise(normals, self.shape)
