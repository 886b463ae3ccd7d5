"""Layers with Radial weights."""

import keras

from keras_bdl.distributions import Radial
from keras_bdl.layers.computed_weights import GivenEmbeddings
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


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialDense(RadialLayer, keras.layers.Dense):
    """Dense layer with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Dense`.
        **kwargs: As of `keras.layers.Dense`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialDense(10, activation="softmax")
    probabilities = layer(features, training=True)  # of one draw
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialEinsumDense(RadialLayer, keras.layers.EinsumDense):
    """Dense layer between any axes with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.EinsumDense`.
        **kwargs: As of `keras.layers.EinsumDense`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialEinsumDense(
        "abc,cd->abd", output_shape=(None, 64), bias_axes="d"
    )
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv1D(RadialLayer, keras.layers.Conv1D):
    """Convolution of sequences with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Conv1D`.
        **kwargs: As of `keras.layers.Conv1D`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv1D(32, 3, padding="causal")
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv2D(RadialLayer, keras.layers.Conv2D):
    """Convolution of images with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Conv2D`.
        **kwargs: As of `keras.layers.Conv2D`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv2D(
        32, 3, padding="same", activation="relu", estimator="flipout"
    )
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv3D(RadialLayer, keras.layers.Conv3D):
    """Convolution of volumes with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Conv3D`.
        **kwargs: As of `keras.layers.Conv3D`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv3D(32, 3, strides=2)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv2DTranspose(RadialLayer, keras.layers.Conv2DTranspose):
    """Transposed convolution of images with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Conv2DTranspose`.
        **kwargs: As of `keras.layers.Conv2DTranspose`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv2DTranspose(
        32, 3, strides=2, padding="same"
    )
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialDepthwiseConv2D(RadialLayer, keras.layers.DepthwiseConv2D):
    """Convolution of every channel by itself with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.DepthwiseConv2D`.
        **kwargs: As of `keras.layers.DepthwiseConv2D`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialDepthwiseConv2D(3, padding="same")
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialEmbedding(GivenEmbeddings, RadialLayer, keras.layers.Embedding):
    """Embedding with Radial weights.

    In training the vectors of all integers are drawn, with one direction and
    one length for the whole table, and KL(q || p) / N is added to the losses.
    Otherwise the vectors are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Embedding`.
        weights: The means to start with, of shape `(input_dim, output_dim)`.
            Defaults to `None`.
        **kwargs: As of `keras.layers.Embedding` and of `RadialLayer`:
            `prior`, `rho_initializer`, `dataset_size`, `seed`. The only
            `estimator` is `"weight"`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialEmbedding(10_000, 64)
    vectors = layer(tokens, training=True)  # of one draw
    ```
    """
