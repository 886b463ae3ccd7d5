"""Layers with Radial weights."""

from keras_bdl.distributions import Radial
from keras_bdl.layers.variational import Variational


class RadialLayer(Variational):
    """Gives the weights of a Keras layer a Radial distribution.

        w = mean + softplus(rho) u r,   u uniform on the unit sphere,
        r = |z|,  z ~ N(0, 1)                                             (1)

    with one direction u and one length r for the whole kernel, and others for
    the bias. A Gaussian in many dimensions has almost all its mass far from
    the mean; here draws near the mean are the most frequent ones, and the
    gradient has less variance. Each weight has the standard deviation
    `softplus(rho) / sqrt(D)`, with D weights in the tensor.

    To be mixed in before the layer, as `MeanFieldLayer`. There is no
    `estimator="local"`: the weights of (1) are not independent.

    Args:
        *args: As of the layer of Keras.
        **kwargs: As of the layer of Keras and of `Variational`.

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865); the KL is exact here where they
          draw it, see `keras_bdl.distributions.Radial`
    """

    family = Radial
    estimators = ("weight", "flipout")
