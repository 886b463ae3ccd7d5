"""What a training may turn up slowly: the KL and the noise."""

import keras


class Annealing:
    """Two numbers of a variational layer that callbacks change.

    They are variables, so that nothing is traced again, and hidden in this
    plain object, so that they are no weights of the layer.

    Attributes:
        kl_weight: Factor of the KL in the loss; 1 is the evidence bound.
        noise: Factor of the noise of the weights in the outputs; 0 is
            training of the means.
    """

    def __init__(self):
        self.kl_weight = _number("kl_weight")
        self.noise = _number("noise")


def _number(name):
    return keras.Variable(
        1.0, dtype="float32", trainable=False, autocast=False, name=name
    )
