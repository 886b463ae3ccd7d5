"""Layers with independent Gaussian weights."""

import math

import keras

from keras_bdl.arguments import check_number
from keras_bdl.distributions import MeanField
from keras_bdl.layers.computed_weights import GivenEmbeddings
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


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldDense(MeanFieldLayer, keras.layers.Dense):
    """Dense layer with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Dense`.
        **kwargs: As of `keras.layers.Dense`, and as of `MeanFieldLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`, `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldDense(10, activation="softmax")
    probabilities = layer(features, training=True)  # of one draw
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEinsumDense(MeanFieldLayer, keras.layers.EinsumDense):
    """Dense layer between any axes with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.EinsumDense`.
        **kwargs: As of `keras.layers.EinsumDense`, and as of `MeanFieldLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`, `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldEinsumDense(
        "abc,cd->abd", output_shape=(None, 64), bias_axes="d"
    )
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv1D(MeanFieldLayer, keras.layers.Conv1D):
    """Convolution of sequences with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Conv1D`.
        **kwargs: As of `keras.layers.Conv1D`, and as of `MeanFieldLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`, `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv1D(32, 3, padding="causal")
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv2D(MeanFieldLayer, keras.layers.Conv2D):
    """Convolution of images with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Conv2D`.
        **kwargs: As of `keras.layers.Conv2D`, and as of `MeanFieldLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`, `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv2D(
        32, 3, padding="same", activation="relu", estimator="flipout"
    )
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv3D(MeanFieldLayer, keras.layers.Conv3D):
    """Convolution of volumes with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Conv3D`.
        **kwargs: As of `keras.layers.Conv3D`, and as of `MeanFieldLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`, `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv3D(32, 3, strides=2)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv2DTranspose(MeanFieldLayer, keras.layers.Conv2DTranspose):
    """Transposed convolution of images with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Conv2DTranspose`.
        **kwargs: As of `keras.layers.Conv2DTranspose`, and as of
            `MeanFieldLayer`: `prior`, `bias_prior`, `variational_bias`,
            `estimator`, `rho_initializer`, `dataset_size`, `seed`,
            `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv2DTranspose(
        32, 3, strides=2, padding="same"
    )
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldDepthwiseConv2D(MeanFieldLayer, keras.layers.DepthwiseConv2D):
    """Convolution of every channel by itself with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.DepthwiseConv2D`.
        **kwargs: As of `keras.layers.DepthwiseConv2D`, and as of
            `MeanFieldLayer`: `prior`, `bias_prior`, `variational_bias`,
            `estimator`, `rho_initializer`, `dataset_size`, `seed`,
            `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldDepthwiseConv2D(3, padding="same")
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEmbedding(
    GivenEmbeddings, MeanFieldLayer, keras.layers.Embedding
):
    """Embedding with independent Gaussian weights.

    In training the vectors of all integers are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Embedding`.
        weights: The means to start with, of shape `(input_dim, output_dim)`.
            Defaults to `None`.
        **kwargs: As of `keras.layers.Embedding` and of `MeanFieldLayer`:
            `prior`, `rho_initializer`, `dataset_size`, `seed`, `truncation`.
            The only `estimator` is `"weight"`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldEmbedding(10_000, 64)
    vectors = layer(tokens, training=True)  # of one draw
    ```
    """
