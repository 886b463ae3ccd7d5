"""Noise that is added to a tensor of weights."""

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
