"""Weight-normalised layers."""

from typing import Any
from typing import Unpack

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Activation
from keras_bdl._aliases import ArrayLike
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
