"""Layers with independent Gaussian weights."""

import math
from typing import Any
from typing import Unpack

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.distributions import MeanField
from keras_bdl.layers._options import Size
from keras_bdl.layers._options import VariationalConvolution
from keras_bdl.layers._options import VariationalDense
from keras_bdl.layers._options import VariationalDepthwise
from keras_bdl.layers._options import VariationalEinsumDense
from keras_bdl.layers._options import VariationalEmbedding
from keras_bdl.layers._options import VariationalTranspose
from keras_bdl.layers._variational import Variational
from keras_bdl.layers._variational import start_from


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

    def __init__(
        self, *args: Any, truncation: float | None = None, **kwargs: Any
    ):
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

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {**super().get_config(), "truncation": self.truncation}


class MeanFieldConvolution(MeanFieldLayer):
    """The constructor of `MeanFieldConv1D` and its two siblings."""

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "valid",
        *,
        truncation: float | None = None,
        **options: Unpack[VariationalConvolution],
    ):
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            truncation=truncation,
            **options,
        )


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldDense(MeanFieldLayer, keras.layers.Dense):
    """Dense layer with independent Gaussian weights.

    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Args:
        units, activation: As in `keras.layers.Dense`.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.Dense`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldDense(10, dataset_size=64)
    logits = layer(x, training=True)  # of one posterior sample
    ```
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        *,
        truncation: float | None = None,
        **options: Unpack[VariationalDense],
    ):
        super().__init__(units, activation, truncation=truncation, **options)


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEinsumDense(MeanFieldLayer, keras.layers.EinsumDense):
    """`EinsumDense` layer with independent Gaussian weights.

    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Args:
        equation, output_shape: As in `keras.layers.EinsumDense`.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.EinsumDense`.

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

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        *,
        truncation: float | None = None,
        **options: Unpack[VariationalEinsumDense],
    ):
        super().__init__(
            equation, output_shape, truncation=truncation, **options
        )


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv1D(MeanFieldConvolution, keras.layers.Conv1D):
    """Convolution of sequences with independent Gaussian weights.

    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in `keras.layers.Conv1D`.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.Conv1D`.
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv2D(MeanFieldConvolution, keras.layers.Conv2D):
    """Convolution of images with independent Gaussian weights.

    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in `keras.layers.Conv2D`.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.Conv2D`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv2D(
        32, 3, activation="relu", estimator="flipout", dataset_size=16
    )
    outputs = layer(images, training=True)
    ```
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv3D(MeanFieldConvolution, keras.layers.Conv3D):
    """Convolution of volumes with independent Gaussian weights.

    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in `keras.layers.Conv3D`.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.Conv3D`.
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv2DTranspose(MeanFieldLayer, keras.layers.Conv2DTranspose):
    """Transposed convolution of images with independent Gaussian weights.

    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Args:
        filters, kernel_size, strides, padding: As in
            `keras.layers.Conv2DTranspose`.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.Conv2DTranspose`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "valid",
        *,
        truncation: float | None = None,
        **options: Unpack[VariationalTranspose],
    ):
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            truncation=truncation,
            **options,
        )


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldDepthwiseConv2D(MeanFieldLayer, keras.layers.DepthwiseConv2D):
    """Convolution of each channel alone with independent Gaussian weights.

    `keras_bdl.extend.MeanFieldLayer` has the formulas and the references.

    Args:
        kernel_size, strides, padding: As in `keras.layers.DepthwiseConv2D`.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.DepthwiseConv2D`.
    """

    def __init__(
        self,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "valid",
        *,
        truncation: float | None = None,
        **options: Unpack[VariationalDepthwise],
    ):
        super().__init__(
            kernel_size, strides, padding, truncation=truncation, **options
        )


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEmbedding(MeanFieldLayer, keras.layers.Embedding):
    """Embedding with independent Gaussian weights.

    One draw holds the vectors of all integers, and the only `estimator` is
    `"weight"`. `keras_bdl.extend.MeanFieldLayer` has the formulas and the
    references.

    Args:
        input_dim, output_dim: As in `keras.layers.Embedding`.
        weights: Initial means, of shape `(input_dim, output_dim)`, or a list
            with this array. Defaults to `None`: `embeddings_initializer`
            draws the means.
        truncation, **options: As in `keras_bdl.extend.MeanFieldLayer`, and
            other arguments of `keras.layers.Embedding`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldEmbedding(10, 4, dataset_size=64)
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
        truncation: float | None = None,
        **options: Unpack[VariationalEmbedding],
    ):
        super().__init__(
            input_dim, output_dim, truncation=truncation, **options
        )
        start_from(self, weights)
