"""Layers with independent Gaussian weights."""

import math

import keras

from keras_bdl._arguments import check_number
from keras_bdl.distributions import MeanField
from keras_bdl.layers._computed_weights import GivenEmbeddings
from keras_bdl.layers._variational import Variational


class MeanFieldLayer(Variational):
    """Gives the weights of a Keras layer independent Gaussian distributions.

        w = mean + softplus(rho) noise,   noise ~ N(0, 1)                 (1)

    In training, the layer adds KL(q || p) / N to the losses, with q the
    distribution (1), p the `prior` and N the number of training examples.

    Derive a layer type from this class and from a layer of Keras, in this
    order.

    Args:
        *args: Arguments of the Keras layer.
        truncation: Largest absolute value of the noise in (1). The gradient
            then has less variance, but the KL is still that of the Gaussian
            without truncation. With `estimator="local"`, which draws no
            weights, this argument raises an error. Defaults to `None`: no
            truncation.
        **kwargs: Arguments of the Keras layer and of `Variational`.

    Example:

    ```python
    @keras.saving.register_keras_serializable(package="my_package")
    class MeanFieldDense(keras_bdl.extend.MeanFieldLayer, keras.layers.Dense):
        pass
    ```

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
                "`truncation` needs an estimator that draws weights. Use "
                '`estimator="weight"` or `estimator="flipout"`. '
                'Received: estimator="local"'
            )
        self.noise_bound = math.erf(truncation / math.sqrt(2))

    def get_config(self):
        """Returns all arguments."""
        return {**super().get_config(), "truncation": self.truncation}


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldDense(MeanFieldLayer, keras.layers.Dense):
    """Dense layer with independent Gaussian weights.

    In training, each forward pass draws the kernel and the bias once, and adds
    KL(q || p) / N to the losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldDense(10, dataset_size=64)
    logits = layer(x, training=True)  # of one posterior sample
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEinsumDense(MeanFieldLayer, keras.layers.EinsumDense):
    """`EinsumDense` layer with independent Gaussian weights.

    In training, each forward pass draws the kernel and the bias once, and adds
    KL(q || p) / N to the losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldEinsumDense(
        "abcd,de->abce",
        output_shape=(8, 8, 10),
        bias_axes="e",
        dataset_size=16,
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv1D(MeanFieldLayer, keras.layers.Conv1D):
    """Convolution of sequences with independent Gaussian weights.

    In training, each forward pass draws the kernel and the bias once, and adds
    KL(q || p) / N to the losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv1D(
        32, 3, padding="causal", dataset_size=64
    )
    outputs = layer(x[:, :, None], training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv2D(MeanFieldLayer, keras.layers.Conv2D):
    """Convolution of images with independent Gaussian weights.

    In training, each forward pass draws the kernel and the bias once, and adds
    KL(q || p) / N to the losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv2D(
        32, 3, activation="relu", estimator="flipout", dataset_size=16
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv3D(MeanFieldLayer, keras.layers.Conv3D):
    """Convolution of volumes with independent Gaussian weights.

    In training, each forward pass draws the kernel and the bias once, and adds
    KL(q || p) / N to the losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv3D(
        32, 3, padding="same", dataset_size=16
    )
    outputs = layer(images[..., None], training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv2DTranspose(MeanFieldLayer, keras.layers.Conv2DTranspose):
    """Transposed convolution of images with independent Gaussian weights.

    In training, each forward pass draws the kernel and the bias once, and adds
    KL(q || p) / N to the losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv2DTranspose(
        32, 3, strides=2, padding="same", dataset_size=16
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldDepthwiseConv2D(MeanFieldLayer, keras.layers.DepthwiseConv2D):
    """Convolution of each channel alone with independent Gaussian weights.

    In training, each forward pass draws the kernel and the bias once, and adds
    KL(q || p) / N to the losses. Otherwise the layer computes with the means.
    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldDepthwiseConv2D(
        3, padding="same", dataset_size=16
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEmbedding(
    GivenEmbeddings, MeanFieldLayer, keras.layers.Embedding
):
    """Embedding with independent Gaussian weights.

    In training, each forward pass draws the vectors of all integers once, and
    adds KL(q || p) / N to the losses. Otherwise the vectors are the means. The
    only `estimator` is `"weight"`. `keras_bdl.extend.MeanFieldLayer` has the
    formulas and the references.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldEmbedding(10, 4, dataset_size=64)
    vectors = layer(y, training=True)  # of one posterior sample
    ```
    """
