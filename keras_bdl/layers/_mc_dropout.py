"""A layer that drops its inputs, for Monte-Carlo dropout."""

from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_seed
from keras_bdl._random._noise import next_seed
from keras_bdl._random._noise import uniform


@keras.saving.register_keras_serializable(package="keras_bdl")
class MCDropout(keras.layers.Wrapper):
    """Applies dropout to the inputs of a layer.

        y = layer(x z / (1 - rate)),   z ~ Bernoulli(1 - rate)            (1)

    in training, with a separate z for each entry of x. Otherwise
    `y = layer(x)`. Dropping an input drops the weights that multiply it: for a
    `Dense` layer, (1) drops rows of the kernel. With
    `keras_bdl.posteriors.MCDropout`, a prediction also applies (1). Each
    replica draws its own mask. With `keras.layers.Dropout`, all replicas share
    one mask.

    Args:
        layer: A layer with one input of real numbers.
        rate: Probability of a zero, between 0 and 1.
        seed: Seed of the dropout. Defaults to `None`, a random seed.
        **kwargs: Arguments of `keras.layers.Layer`. `dtype` is that of the
            dropout, and defaults to the dtype policy of `layer`. The outputs
            have the dtype of those of `layer`.

    Call arguments:
        inputs: Inputs of the layer.
        training: Whether to drop inputs. If the call of `layer` has this
            argument, `layer` receives the same value.

    Example:

    ```python
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(50, activation="relu"),
            keras_bdl.layers.MCDropout(keras.layers.Dense(1), rate=0.1),
        ]
    )
    ```

    Reference:
        - Gal and Ghahramani, [Dropout as a Bayesian Approximation](
          https://arxiv.org/abs/1506.02142), eq. 4
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        rate: float,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ):
        check_number("rate", rate, above=0.0, below=1.0)
        if seed is not None:
            check_seed(seed)
        # `Wrapper` raises an error if `layer` is not a layer.
        kwargs.setdefault("dtype", getattr(layer, "dtype_policy", None))
        super().__init__(layer, **kwargs)
        self.rate = rate
        self.seed = seed
        self.dropout = _Dropout(rate, seed=seed, dtype=self.dtype_policy)
        self.supports_masking = layer.supports_masking

    def call(self, inputs: ArrayLike, training: bool | None = None) -> Any:
        """Applies (1) in training, otherwise the layer alone."""
        return self.layer(self.dropout(inputs, training=training))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Returns the mask of the layer."""
        return self.layer.compute_mask(inputs, previous_mask)

    def compute_output_spec(
        self, inputs: keras.KerasTensor, training: bool | None = None
    ) -> keras.KerasTensor:
        """Returns shape and dtype of the outputs of the layer."""
        return outputs_of_inner(self.layer, inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the output shape of the layer."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


class _Dropout(keras.layers.Dropout):
    """Draws a separate mask on each replica; Keras draws one mask for all."""

    def call(self, inputs: ArrayLike, training: bool = False) -> ArrayLike:
        if not training:
            return inputs
        u = uniform(ops.shape(inputs), next_seed(self.seed_generator))
        kept = u > 2.0 * self.rate - 1.0
        scale = ops.cast(1.0 / (1.0 - self.rate), inputs.dtype)
        return ops.where(kept, scale * inputs, ops.zeros_like(inputs))


def outputs_of_inner(
    layer: keras.layers.Layer, inputs: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns shape and dtype of the outputs of a layer in another layer.

    The inner layer computes in its own precision. Keras would declare the
    precision of the outer layer.
    """
    inputs = layer.dtype_policy.convert_input(
        inputs, layer.autocast, layer.input_dtype
    )
    return layer.compute_output_spec(inputs)
