"""Where learned variances begin."""

import math

import numpy as np

from keras_bdl.posteriors.covered_weights import excluded_variables


def times_prior_stddevs(network, prior):
    """Multiplies initial standard deviations by those of the prior.

    Args:
        network: Compiled with an objective that learns variances.
        prior: The `HeNormal` of the objective.
    """
    objective = network.objective
    excluded = excluded_variables(network, objective.exclude_from_inference)
    shapes = [
        v.shape for v in network.trainable_variables if id(v) not in excluded
    ]
    logs = [math.log(prior.of_shape(shape).stddev) for shape in shapes]
    many = objective.covariance == "diagonal"
    sizes = [math.prod(shape) if many else 1 for shape in shapes]
    (log_stddevs,) = objective.trainable_variables
    # The objective counts in units of this multiplier.
    log_stddevs.assign(
        np.repeat(logs, sizes) / objective.learning_rate_multiplier
    )
