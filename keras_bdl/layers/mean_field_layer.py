"""Layers with independent Gaussian weights."""

import math

from keras_bdl.arguments import check_number
from keras_bdl.distributions import MeanField
from keras_bdl.layers.variational import Variational


class MeanFieldLayer(Variational):
    """Gives the weights of a Keras layer independent Gaussian distributions.

        w = mean + softplus(rho) noise,   noise ~ N(0, 1)                 (1)

    To be mixed in before the layer:

    ```python
    @keras.saving.register_keras_serializable(package="my_package")
    class MeanFieldDense(MeanFieldLayer, keras.layers.Dense):
        pass
    ```

    Args:
        *args: As of the layer of Keras.
        truncation: Draws only noise smaller than this many standard
            deviations: less variance of the gradient, of a distribution that
            is not the one of the KL. Not for `estimator="local"`, which draws
            no weights. Defaults to `None`, all of (1).
        **kwargs: As of the layer of Keras and of `Variational`.

    Reference:
        - Blundell et al., [Weight Uncertainty in Neural Networks](
          https://arxiv.org/abs/1505.05424)
        - Wen et al., [Flipout](https://arxiv.org/abs/1803.04386)
        - Kingma et al., [Variational Dropout and the Local
          Reparameterization Trick](https://arxiv.org/abs/1506.02557)
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), appendix F: truncation
    """

    family = MeanField

    def __init__(self, *args, truncation: float | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.truncation = truncation
        if truncation is None:
            return
        check_number("truncation", truncation, above=0.0)
        if self.estimator == "local":
            raise ValueError(
                '`truncation` needs weights that are drawn. Use `"weight"` or '
                '`"flipout"`. Received: estimator="local"'
            )
        self.noise_bound = math.erf(truncation / math.sqrt(2))

    def get_config(self):
        """Returns all arguments."""
        return {**super().get_config(), "truncation": self.truncation}
