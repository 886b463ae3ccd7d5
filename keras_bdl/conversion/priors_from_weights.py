"""Priors and posteriors made from the weights of a trained network."""

import numpy as np
from keras import ops

from keras_bdl.distributions import MeanField

# Of the standard deviation of a weight, as that of a zero would be zero.
SMALLEST_STDDEV = 1e-4


def set_prior_from_means(layer, delta, names):
    """Makes the means of a variational layer the centre of its prior.

    Prior and posterior have the mean w and for each weight the standard
    deviation

        s = max(delta |w|, 1e-4)                                          (1)

    Args:
        layer: A layer with a `Variational` base that is built.
        delta: As in (1).
        names: The tensors to do it for, such as `"kernel"`.
    """
    chosen = {}
    for posterior in layer.weight_posteriors:
        if posterior.name not in names:
            continue
        mean = ops.convert_to_numpy(posterior.mean)
        stddev = np.maximum(delta * np.abs(mean), SMALLEST_STDDEV)  # (1)
        unit = posterior.family(mean, ops.ones_like(mean))
        width = ops.sqrt(unit.variance)  # of a weight, if the scale is 1
        posterior.rho.assign(_softplus_inverse(stddev / width))
        # What the rounded rho stands for: KL(q || p) is then zero.
        q = posterior.distribution()
        chosen[posterior.name] = MeanField(q.mean, q.stddev * width)
    layer.set_prior(**chosen)


def _softplus_inverse(x):
    x = np.asarray(x, "float64")
    return x + np.log(-np.expm1(-x))
