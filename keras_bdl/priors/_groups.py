"""Groups of weights, one for each output feature.

The last axis of a variable counts the groups. A group holds the `d` weights of
one output feature of a `Dense` or convolutional kernel. In a variable of rank 0
or 1, such as a bias, each entry is a group.
"""

import math

from keras import ops


def group_length(shape):
    """Returns d, the number of weights in a group."""
    return math.prod(shape[:-1])


def group_count(shape):
    """Returns the number of groups."""
    return math.prod(shape[-1:])


def squared_norms(x):
    """Returns the squared length of each group."""
    return ops.sum(ops.square(x), axis=tuple(range(len(x.shape) - 1)))


def normalize(x):
    """Returns each group divided by its length."""
    return x / ops.sqrt(squared_norms(x))


def log_sphere_area(length: int):
    """Returns the log area of the unit sphere in d dimensions."""
    half = 0.5 * length
    return math.log(2.0) + half * math.log(math.pi) - math.lgamma(half)
