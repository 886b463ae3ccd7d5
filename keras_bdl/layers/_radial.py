"""Layers with Radial weights."""

from typing import Any
from typing import Unpack

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ArrayLike
from keras_bdl.distributions import Radial
from keras_bdl.layers._options import Size
from keras_bdl.layers._options import VariationalConvolution
from keras_bdl.layers._options import VariationalDense
from keras_bdl.layers._options import VariationalDepthwise
from keras_bdl.layers._options import VariationalEinsumDense
from keras_bdl.layers._options import VariationalEmbedding
from keras_bdl.layers._options import VariationalTranspose
from keras_bdl.layers._variational import Variational
from keras_bdl.layers._variational import start_from


class RadialLayer(Variational):
    """Gives the weights of a Keras layer a Radial distribution.

        w = mean + sqrt(D) softplus(rho) u r,   r = |z|,  z ~ N(0, 1),
        u uniform on the unit sphere of R^D                               (1)

    The whole kernel has one direction u and one length r, and the bias has its
    own. A Gaussian in many dimensions has almost all its mass far from the
    mean. Radial draws are most frequent near the mean, so the gradient has
    less variance. D is the number of weights in the tensor, so each weight has
    the standard deviation `softplus(rho)`, as in mean-field layers. In
    training, the layer adds KL(q || p) / N to the losses, with q the
    distribution (1), p the `prior` and N the number of training examples.

    Derive a layer type from this class and from a layer of Keras, in this
    order. The weights of (1) are not independent, so `estimator` cannot be
    `"local"`.

    Args:
        *args: Arguments of the Keras layer.
        **kwargs: Arguments of the Keras layer and of `Variational`.

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865); the paper's scale has no
          `sqrt(D)`, with which scales hardly move; it estimates the KL
          from draws, and `keras_bdl.distributions.Radial` has the exact KL
          for Gaussian priors
    """

    family = Radial
    estimators: tuple[str, ...] = ("weight", "flipout")


class RadialConvolution(RadialLayer):
    """The constructor of `RadialConv1D` and its two siblings."""

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "valid",
        **options: Unpack[VariationalConvolution],
    ):
        super().__init__(filters, kernel_size, strides, padding, **options)


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialDense(RadialLayer, keras.layers.Dense):
    """Dense layer with Radial weights.

    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Args:
        units, activation: As in `keras.layers.Dense`.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.Dense`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialDense(10, dataset_size=64)
    logits = layer(x, training=True)  # of one posterior sample
    ```
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        **options: Unpack[VariationalDense],
    ):
        super().__init__(units, activation, **options)


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialEinsumDense(RadialLayer, keras.layers.EinsumDense):
    """`EinsumDense` layer with Radial weights.

    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Args:
        equation, output_shape: As in `keras.layers.EinsumDense`.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.EinsumDense`.
    """

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        **options: Unpack[VariationalEinsumDense],
    ):
        super().__init__(equation, output_shape, **options)


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv1D(RadialConvolution, keras.layers.Conv1D):
    """Convolution of sequences with Radial weights.

    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in `keras.layers.Conv1D`.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.Conv1D`.
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv2D(RadialConvolution, keras.layers.Conv2D):
    """Convolution of images with Radial weights.

    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in `keras.layers.Conv2D`.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.Conv2D`.
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv3D(RadialConvolution, keras.layers.Conv3D):
    """Convolution of volumes with Radial weights.

    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in `keras.layers.Conv3D`.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.Conv3D`.
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv2DTranspose(RadialLayer, keras.layers.Conv2DTranspose):
    """Transposed convolution of images with Radial weights.

    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in
            `keras.layers.Conv2DTranspose`.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.Conv2DTranspose`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "valid",
        **options: Unpack[VariationalTranspose],
    ):
        super().__init__(filters, kernel_size, strides, padding, **options)


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialDepthwiseConv2D(RadialLayer, keras.layers.DepthwiseConv2D):
    """Convolution of each channel alone with Radial weights.

    `keras_bdl.extend.RadialLayer` has the formulas and the references.

    Args:
        kernel_size, strides, padding: As in `keras.layers.DepthwiseConv2D`.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.DepthwiseConv2D`.
    """

    def __init__(
        self,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "valid",
        **options: Unpack[VariationalDepthwise],
    ):
        super().__init__(kernel_size, strides, padding, **options)


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialEmbedding(RadialLayer, keras.layers.Embedding):
    """Embedding with Radial weights.

    The whole table has one direction and one length, and the only `estimator`
    is `"weight"`. `keras_bdl.extend.RadialLayer` has the formulas and the
    references.

    Args:
        input_dim, output_dim: As in `keras.layers.Embedding`.
        weights: Initial means, of shape `(input_dim, output_dim)`, or a list
            with this array. Defaults to `None`: `embeddings_initializer`
            draws the means.
        **options: As in `keras_bdl.extend.RadialLayer`, and other arguments of
            `keras.layers.Embedding`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialEmbedding(10, 4, dataset_size=64)
    vectors = layer(y, training=True)  # of one posterior sample
    ```
    """

    estimators: tuple[str, ...] = ("weight",)

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        weights: ArrayLike | None = None,
        **options: Unpack[VariationalEmbedding],
    ):
        super().__init__(input_dim, output_dim, **options)
        start_from(self, weights)
