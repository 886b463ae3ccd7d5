"""Weight-normalised layers, with the rules for their curvature."""

from typing import Any
from typing import Unpack

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Activation
from keras_bdl._aliases import ArrayLike
from keras_bdl.curvature._rule import ExampleSums
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rules._conv import ConvRule
from keras_bdl.curvature._rules._dense import DenseRule
from keras_bdl.curvature._rules._dense import outer_moments
from keras_bdl.curvature._rules._dense import outer_products
from keras_bdl.layers._computed_weights import ComputedWeights
from keras_bdl.layers._options import Size
from keras_bdl.layers._options import WeightNormConvolution
from keras_bdl.layers._options import WeightNormOptions
from keras_bdl.priors._vectors import GroupLaplace
from keras_bdl.priors._vectors import group_length
from keras_bdl.priors._vectors import squared_norms


class WeightNorm(ComputedWeights):
    """Makes the kernel of a Keras layer from directions and scales.

    An output feature is an entry of the last axis of the kernel. Each feature
    has a direction vector phi_d and a scale phi_s. Its weights theta are

        theta = phi_s phi_d / ||phi_d||                                   (1)

    The norm covers all other axes. A norm below 1e-6 counts as 1e-6, so a
    direction of zero gives a kernel of zero. Every direction starts with
    length 1.

    Derive a weight-normalised layer from this class and from a layer of
    Keras, in this order. The Keras layer must create its kernel by
    `add_weight(name="kernel")`, keep it as `_kernel` and read it as `kernel`.
    `weights` lists the direction, the scale, and then the other weights.

    `kernel_initializer` draws the directions; (1) removes the lengths.
    `kernel_regularizer`, `kernel_constraint`, LoRA and quantization need a
    kernel that is a variable, and raise an error.
    """

    sources = "a direction and a scale"
    built: bool
    compute_dtype: str
    refused = (
        "kernel_regularizer",
        "kernel_constraint",
        *ComputedWeights.refused,
    )
    hint = " and use `direction_regularizer` and `scale_regularizer`"

    def __init__(
        self,
        *args: Any,
        scale_initializer: Any = "ones",
        direction_regularizer: Any = None,
        scale_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.scale_initializer = keras.initializers.get(scale_initializer)
        self.direction_regularizer = keras.regularizers.get(
            direction_regularizer
        )
        self.scale_regularizer = keras.regularizers.get(scale_regularizer)

    def add_weight(
        self, *args: Any, name: str | None = None, **kwargs: Any
    ) -> keras.Variable:
        """Adds a weight; the kernel becomes a direction and a scale."""
        if name != "kernel":
            return super().add_weight(*args, name=name, **kwargs)
        shape = kwargs["shape"]
        # autocast=False: the norm is computed in float32.
        direction = super().add_weight(
            name="direction",
            shape=shape,
            initializer=self._initial_direction,
            regularizer=self.direction_regularizer,
            autocast=False,
        )
        scale_regularizer = self.scale_regularizer
        if isinstance(scale_regularizer, GroupLaplace):
            scale_regularizer = scale_regularizer.of_scales(group_length(shape))
        self.scale = super().add_weight(
            name="scale",
            shape=shape[-1:],
            initializer=self.scale_initializer,
            regularizer=scale_regularizer,
            autocast=False,
        )
        return direction

    @property
    def direction(self) -> keras.Variable:
        """The variable phi_d, which has the shape of the kernel."""
        return _keras.stored_kernel(self)

    @property
    def kernel(self) -> ArrayLike:
        """Theta of (1), a tensor of the compute dtype."""
        if not self.built:
            raise AttributeError(
                f"`{type(self).__name__}` gets its kernel when it is built. "
                "Call the layer on an input first. "
                f"Received: built={self.built}"
            )
        factor = self.scale * _inverse_norm(self.direction)
        return ops.cast(self.direction * factor, self.compute_dtype)  # (1)

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            **super().get_config(),
            "scale_initializer": keras.initializers.serialize(
                self.scale_initializer
            ),
            "direction_regularizer": keras.regularizers.serialize(
                self.direction_regularizer
            ),
            "scale_regularizer": keras.regularizers.serialize(
                self.scale_regularizer
            ),
        }

    def _initial_direction(self, shape: Any, dtype: Any = None) -> ArrayLike:
        # Keras reads `None` as the default initializer.
        initializer = self.kernel_initializer or "glorot_uniform"
        draw = keras.initializers.get(initializer)(shape, dtype=dtype)
        unit = ops.multiply(draw, _inverse_norm(draw))  # in float32
        return ops.cast(unit, dtype)


def _inverse_norm(directions: ArrayLike) -> ArrayLike:
    """Returns 1/||phi_d|| of each feature, at least in float32."""
    dtype = keras.backend.result_type(directions.dtype, "float32")
    squares = squared_norms(ops.cast(directions, dtype))
    return ops.rsqrt(ops.maximum(squares, 1e-12))


@keras.saving.register_keras_serializable(package="keras_bdl")
class WeightNormDense(WeightNorm, keras.layers.Dense):
    """Dense layer with weight normalisation.

    Each unit has a direction phi_d, a vector, and a scale phi_s, a number. The
    weights theta of the unit are

        theta = phi_s phi_d / ||phi_d||                                   (1)

    The layer has the weights `direction` (input size, units), `scale`
    (units) and `bias`. Every call computes `kernel` from them. The length of
    phi_d changes the effective step size, but not the output. A sampler
    therefore needs a prior that keeps the length near 1, such as
    `UnitDirection`.

    Args:
        units, activation: As in `keras.layers.Dense`.
        scale_initializer: Initializer of phi_s. Defaults to `"ones"`: the
            outputs then have about the mean square of the inputs.
        direction_regularizer: Prior or other regularizer of phi_d. Defaults
            to `None`.
        scale_regularizer: Prior or other regularizer of phi_s. A
            `GroupLaplace` is a prior of theta: the layer gives phi_s the prior
            `GroupLaplace.of_scales`. Defaults to `None`.
        **options: Other arguments of `keras.layers.Dense`. `kernel_initializer`
            draws the directions. `kernel_regularizer`, `kernel_constraint`,
            LoRA and quantization raise an error.

    Example:

    ```python
    layer = keras_bdl.layers.WeightNormDense(
        10,
        direction_regularizer=keras_bdl.extend.UnitDirection(),
        scale_regularizer=keras_bdl.priors.Laplace(5.0),
    )
    ```

    Reference:
        - Salimans and Kingma, [Weight Normalization](
          https://arxiv.org/abs/1602.07868), eq. 2, with w = theta, v = phi_d,
          g = phi_s. The layer leaves out their initialisation from a first
          batch of data

        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), eq. 12
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        **options: Unpack[WeightNormOptions],
    ):
        super().__init__(units, activation, **options)


@keras.saving.register_keras_serializable(package="keras_bdl")
class WeightNormConv2D(WeightNorm, keras.layers.Conv2D):
    """Convolution of images with weight normalisation, as `WeightNormDense`.

    A filter takes the place of a unit. The layer has the weights `direction`
    (height, width, input channels of a group, filters), `scale` (filters) and
    `bias`.

    Args:
        filters, kernel_size, strides, padding: As in `keras.layers.Conv2D`.
        **options: As in `WeightNormDense`, and other arguments of
            `keras.layers.Conv2D`.

    Example:

    ```python
    layer = keras_bdl.layers.WeightNormConv2D(
        32,
        3,
        padding="same",
        direction_regularizer=keras_bdl.extend.UnitDirection(),
        scale_regularizer=keras_bdl.priors.Laplace(5.0),
    )
    ```
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "valid",
        **options: Unpack[WeightNormConvolution],
    ):
        super().__init__(filters, kernel_size, strides, padding, **options)


class WeightNormRule:
    """Rule for a kernel that a layer computes from directions and scales.

    G_i is the gradient of example i with respect to the kernel
    theta = phi_s u, with u = phi_d / ||phi_d||. The gradients with respect to
    the scale phi_s (1) and the direction phi_d (2) are

        t_i = sum_in u G_i                                                (1)
        r_i = phi_s / ||phi_d|| (G_i - u t_i)                             (2)

    for each output feature. The rule computes t_i without G_i: t_i is the sum
    over positions of cotangents times outputs of the layer with the kernel u.

    A subclass lists this class before the rule of the layer with an ordinary
    kernel.
    """

    # Methods of the other rule.
    groups: Any
    blocks: Any
    kernel_of_blocks: Any
    bias_per_example: Any

    def weights(self, layer: Any) -> list:
        """Returns direction and scale, and the bias if the layer has a bias."""
        weights = [layer.direction, layer.scale]
        return weights + ([] if layer.bias is None else [layer.bias])

    def apply(
        self, layer: Any, inputs: ArrayLike, kernel: ArrayLike
    ) -> ArrayLike:
        """Returns the outputs of the layer with `kernel`, without the bias."""
        raise NotImplementedError

    def per_example(
        self, layer: Any, inputs: ArrayLike, cotangents: ArrayLike
    ) -> list:
        """Returns the gradients of each example."""
        groups = self.groups(layer)
        blocks = [
            outer_products(x, dz, groups)
            for x, dz in self.blocks(layer, inputs, cotangents)
        ]
        kernels = self.kernel_of_blocks(layer, blocks)
        unit, factor, curved = _parts(layer)
        t = self._by_scale(layer, inputs, cotangents, unit)
        broadcast = (-1, *[1] * (len(unit.shape) - 1), unit.shape[-1])
        gradients = [
            factor * (kernels - curved * unit * ops.reshape(t, broadcast)),
            t,
        ]
        if layer.bias is not None:
            gradients.append(self.bias_per_example(layer, cotangents))
        return gradients

    def moments(
        self, layer: Any, calls: list, example_weights: ArrayLike | None
    ) -> list:
        """Returns the moments, block by block."""
        sums = ExampleSums(example_weights)
        groups = self.groups(layer)
        unit, factor, curved = _parts(layer)
        t: Any = sum(self._by_scale(layer, x, dz, unit) for x, dz in calls)
        split = ops.reshape(t, (-1, groups, t.shape[-1] // groups))
        each = [self.blocks(layer, *call) for call in calls]
        units = _blocks_of_kernel(curved * unit, groups)
        moments = [
            outer_moments(
                list(blocks), groups=groups, sums=sums, minus=(units[i], split)
            )
            for i, blocks in enumerate(zip(*each, strict=True))
        ]
        gradient, squares = (
            self.kernel_of_blocks(layer, list(blocks))
            for blocks in zip(*moments, strict=True)
        )
        found = [(factor * gradient, ops.square(factor) * squares), sums.of(t)]
        if layer.bias is not None:
            bias: Any = sum(self.bias_per_example(layer, dz) for _, dz in calls)
            found.append(sums.of(bias))
        return found

    def matrices(self, layer: Any) -> list:
        """Returns `[]`: the layer computes its kernel from variables."""
        return []

    def _by_scale(
        self,
        layer: Any,
        inputs: ArrayLike,
        cotangents: ArrayLike,
        unit: ArrayLike,
    ) -> ArrayLike:
        x = in_full_precision(inputs)
        outputs = self.apply(layer, x, ops.cast(unit, x.dtype))
        return self.bias_per_example(layer, cotangents * outputs)  # (1)


@register_rule(WeightNormDense)
class WeightNormDenseRule(WeightNormRule, DenseRule):
    """The rule for `WeightNormDense`."""

    def apply(
        self, layer: Any, inputs: ArrayLike, kernel: ArrayLike
    ) -> ArrayLike:
        """Returns the outputs of the layer with `kernel`, without the bias."""
        return ops.matmul(inputs, kernel)


@register_rule(WeightNormConv2D)
class WeightNormConvRule(WeightNormRule, ConvRule):
    """The rule for `WeightNormConv2D`."""

    stacks_rows = False

    def apply(
        self, layer: Any, inputs: ArrayLike, kernel: ArrayLike
    ) -> ArrayLike:
        """Returns the outputs of the layer with `kernel`, without the bias."""
        return layer.convolution_op(inputs, kernel)


def _parts(layer: Any) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
    """Returns u, phi_s / ||phi_d||, and 1 where u has length 1, else 0."""
    direction = in_full_precision(ops.convert_to_tensor(layer.direction))
    norms = squared_norms(direction)
    # The layer does not lengthen directions shorter than 1e-6.
    inverse = ops.rsqrt(ops.maximum(norms, 1e-12))
    curved = ops.cast(norms > 1e-12, direction.dtype)
    return direction * inverse, layer.scale * inverse, curved


def _blocks_of_kernel(kernel: ArrayLike, groups: int) -> ArrayLike:
    """Returns a kernel as `(blocks, groups, in, out)`."""
    size_in, size_out = kernel.shape[-2:]
    split = ops.reshape(kernel, (-1, size_in, groups, size_out // groups))
    return ops.transpose(split, (0, 2, 1, 3))
