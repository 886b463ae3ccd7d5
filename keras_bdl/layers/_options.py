"""Arguments that several layers share, for editors and type checkers."""

from typing import Any
from typing import TypeAlias
from typing import TypedDict

from keras_bdl._aliases import Activation
from keras_bdl._aliases import PriorLike

# Of a kernel, strides or dilation: one number, or one for each dimension.
Size: TypeAlias = int | tuple[int, ...]


class VariationalOptions(TypedDict, total=False):
    """The arguments that `keras_bdl.extend.Variational` documents."""

    prior: PriorLike | None
    bias_prior: PriorLike | None
    variational_bias: bool
    estimator: str
    rho_initializer: Any
    dataset_size: int | None
    seed: int | None


class LayerOptions(TypedDict, total=False):
    """The arguments of every layer that `keras.layers.Layer` documents."""

    name: str | None
    dtype: Any
    trainable: bool
    activity_regularizer: Any


class BiasOptions(LayerOptions, total=False):
    """The arguments that `keras.layers.Dense` documents for the bias."""

    bias_initializer: Any
    bias_regularizer: Any
    bias_constraint: Any


class KernelOptions(BiasOptions, total=False):
    """The arguments that `keras.layers.Dense` documents for its weights."""

    kernel_initializer: Any
    kernel_regularizer: Any
    kernel_constraint: Any


class ConvolutionOptions(KernelOptions, total=False):
    """The arguments that `keras.layers.Conv2D` documents."""

    strides: Size
    padding: str
    data_format: str | None
    dilation_rate: Size
    activation: Activation
    use_bias: bool


class WeightNormOptions(BiasOptions, total=False):
    """Of `keras_bdl.layers.WeightNormDense` and `keras.layers.Dense`."""

    use_bias: bool
    kernel_initializer: Any
    scale_initializer: Any
    direction_regularizer: Any
    scale_regularizer: Any


class WeightNormConvolution(WeightNormOptions, total=False):
    """Of `keras_bdl.layers.WeightNormDense` and `keras.layers.Conv2D`."""

    strides: Size
    padding: str
    data_format: str | None
    dilation_rate: Size
    groups: int
    activation: Activation


class VariationalDense(VariationalOptions, KernelOptions, total=False):
    """Of `keras_bdl.extend.Variational` and `keras.layers.Dense`."""

    use_bias: bool


class VariationalEinsumDense(VariationalOptions, KernelOptions, total=False):
    """Of `keras_bdl.extend.Variational` and `keras.layers.EinsumDense`."""

    activation: Activation
    bias_axes: str | None


class VariationalConvolution(
    VariationalOptions, ConvolutionOptions, total=False
):
    """Of `keras_bdl.extend.Variational` and `keras.layers.Conv2D`."""

    groups: int


class VariationalTranspose(VariationalOptions, ConvolutionOptions, total=False):
    """Of `keras_bdl.extend.Variational`, `keras.layers.Conv2DTranspose`."""

    output_padding: Size | None


class VariationalDepthwise(VariationalOptions, BiasOptions, total=False):
    """Of `keras_bdl.extend.Variational`, `keras.layers.DepthwiseConv2D`."""

    strides: Size
    padding: str
    depth_multiplier: int
    data_format: str | None
    dilation_rate: Size
    activation: Activation
    use_bias: bool
    depthwise_initializer: Any
    depthwise_regularizer: Any
    depthwise_constraint: Any


class VariationalEmbedding(VariationalOptions, LayerOptions, total=False):
    """Of `keras_bdl.extend.Variational` and `keras.layers.Embedding`."""

    embeddings_initializer: Any
    embeddings_regularizer: Any
    embeddings_constraint: Any
    mask_zero: bool
