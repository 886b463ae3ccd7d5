"""The initial values of learned variances."""

import math

import keras
import numpy as np


def times_prior_stddevs(network, prior):
    """Multiplies initial standard deviations by those of the prior.

    Args:
        network: A network compiled with an objective that learns the
            variances of all weights outside of BatchNormalization.
        prior: The `HeNormal` of the objective.
    """
    objective = network.objective
    shapes = [
        variable.shape
        for layer in network.layers
        if not isinstance(layer, keras.layers.BatchNormalization)
        for variable in layer.trainable_variables
    ]
    logs = [math.log(prior.of_shape(shape).stddev) for shape in shapes]
    many = objective.covariance == "diagonal"
    sizes = [math.prod(shape) if many else 1 for shape in shapes]
    (log_stddevs,) = objective.trainable_variables
    # The objective stores its variables divided by this multiplier.
    log_stddevs.assign(
        np.repeat(logs, sizes) / objective.learning_rate_multiplier
    )
