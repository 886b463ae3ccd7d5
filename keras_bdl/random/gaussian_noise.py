"""Standard normal numbers out of uniform ones."""

import math

from keras import ops


def gaussian_noise(uniforms):
    """Returns the normal number that belongs to each uniform number.

    Uniform numbers between -1 and 1 give the whole distribution, those
    between `-erf(k / sqrt 2)` and `erf(k / sqrt 2)` the numbers below k.
    """
    # TensorFlow's function rounds numbers close to 1, and is infinite for the
    # last of them; it is exact close to -1.
    lower = ops.erfinv(-ops.abs(uniforms))
    return -math.sqrt(2) * ops.sign(uniforms) * lower
