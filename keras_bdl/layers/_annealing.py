"""The factors of the KL and of the noise, which callbacks raise slowly."""

import keras


class Annealing:
    """Numbers of a variational layer that callbacks change.

    The numbers are variables, so a change needs no new trace. This plain
    object hides the variables from Keras, so they are not weights of the layer.

    Attributes:
        kl_weight: Factor of the KL in the loss. 1 gives the evidence bound.
        kl_schedule: A function without arguments that returns this factor in
            the graph, in place of `kl_weight`, or `None`.
        noise: Factor of the standard deviation of the drawn weights, and of the
            KL. With 0, the likelihood alone trains the means.
    """

    def __init__(self):
        self.kl_weight = _number("kl_weight")
        self.kl_schedule = None
        self.noise = _number("noise")

    def kl_factor(self):
        """Returns the factor of the KL in the loss."""
        if self.kl_schedule is not None:
            return self.noise * self.kl_schedule()
        return self.noise * self.kl_weight


def _number(name):
    return keras.Variable(
        1.0, dtype="float32", trainable=False, autocast=False, name=name
    )
