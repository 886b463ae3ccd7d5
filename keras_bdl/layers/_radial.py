"""Layers with Radial weights."""

import keras

from keras_bdl.distributions import Radial
from keras_bdl.layers._computed_weights import GivenEmbeddings
from keras_bdl.layers._variational import Variational


class RadialLayer(Variational):
    """Gives the weights of a Keras layer a Radial distribution.

        w = mean + softplus(rho) u r,   u uniform on the unit sphere,
        r = |z|,  z ~ N(0, 1)                                             (1)

    The whole kernel has one direction u and one length r, and the bias has its
    own. A Gaussian in many dimensions has almost all its mass far from the
    mean. Radial draws are most frequent near the mean, so the gradient has
    less variance. Each weight has the standard deviation
    `softplus(rho) / sqrt(D)`, with D weights in the tensor. In training, the
    layer adds KL(q || p) / N to the losses, with q the distribution (1), p the
    `prior` and N the number of training examples.

    Derive a layer type from this class and from a layer of Keras, in this
    order. The weights of (1) are not independent, so `estimator` cannot be
    `"local"`.

    Args:
        *args: Arguments of the Keras layer.
        **kwargs: Arguments of the Keras layer and of `Variational`.

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865); the paper estimates the KL
          from draws, and `keras_bdl.distributions.Radial` has the exact KL
          for Gaussian priors
    """

    family = Radial
    estimators: tuple[str, ...] = ("weight", "flipout")


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialDense(RadialLayer, keras.layers.Dense):
    """Dense layer with Radial weights.

    In training, each forward pass draws a direction and a length for the
    kernel, and another pair for the bias. The pass adds KL(q || p) / N to the
    losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialDense(10, dataset_size=64)
    logits = layer(x, training=True)  # of one posterior sample
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialEinsumDense(RadialLayer, keras.layers.EinsumDense):
    """`EinsumDense` layer with Radial weights.

    In training, each forward pass draws a direction and a length for the
    kernel, and another pair for the bias. The pass adds KL(q || p) / N to the
    losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialEinsumDense(
        "abcd,de->abce",
        output_shape=(8, 8, 10),
        bias_axes="e",
        dataset_size=16,
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv1D(RadialLayer, keras.layers.Conv1D):
    """Convolution of sequences with Radial weights.

    In training, each forward pass draws a direction and a length for the
    kernel, and another pair for the bias. The pass adds KL(q || p) / N to the
    losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv1D(
        32, 3, padding="causal", dataset_size=64
    )
    outputs = layer(x[:, :, None], training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv2D(RadialLayer, keras.layers.Conv2D):
    """Convolution of images with Radial weights.

    In training, each forward pass draws a direction and a length for the
    kernel, and another pair for the bias. The pass adds KL(q || p) / N to the
    losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv2D(
        32, 3, activation="relu", estimator="flipout", dataset_size=16
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv3D(RadialLayer, keras.layers.Conv3D):
    """Convolution of volumes with Radial weights.

    In training, each forward pass draws a direction and a length for the
    kernel, and another pair for the bias. The pass adds KL(q || p) / N to the
    losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv3D(
        32, 3, padding="same", dataset_size=16
    )
    outputs = layer(images[..., None], training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv2DTranspose(RadialLayer, keras.layers.Conv2DTranspose):
    """Transposed convolution of images with Radial weights.

    In training, each forward pass draws a direction and a length for the
    kernel, and another pair for the bias. The pass adds KL(q || p) / N to the
    losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv2DTranspose(
        32, 3, strides=2, padding="same", dataset_size=16
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialDepthwiseConv2D(RadialLayer, keras.layers.DepthwiseConv2D):
    """Convolution of each channel alone with Radial weights.

    In training, each forward pass draws a direction and a length for the
    kernel, and another pair for the bias. The pass adds KL(q || p) / N to the
    losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialDepthwiseConv2D(
        3, padding="same", dataset_size=16
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialEmbedding(GivenEmbeddings, RadialLayer, keras.layers.Embedding):
    """Embedding with Radial weights.

    In training, each forward pass draws one direction and one length for the
    whole table, and adds KL(q || p) / N to the losses. Otherwise the vectors
    are the means. The only `estimator` is `"weight"`.
    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.RadialEmbedding(10, 4, dataset_size=64)
    vectors = layer(y, training=True)  # of one posterior sample
    ```
    """
