"""A frozen layer beside a low-rank adapter (LoRA) with distributions."""

from typing import Any

import keras

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.layers._inner_outputs import outputs_of_inner


@keras.saving.register_keras_serializable(package="keras_bdl")
class AdaptedLayer(keras.layers.Layer):
    """Adds a low-rank adapter, made of two layers, to a frozen layer.

    `keras_bdl.convert` makes this layer from a layer with `enable_lora`. With
    the frozen layer K, the layers A and B and their factor s, the outputs are

        activation(K(x) + B(s A(x)))                                      (1)

    A and B may have distributions over their weights, such as
    `keras_bdl.layers.MeanFieldDense`. B has the bias, if there is one. K never
    trains, whatever `trainable` is.

    Args:
        layer: K, without a bias and an activation.
        down: A, a layer whose outputs have as many channels as the rank.
        up: B, a layer whose outputs have the shape of those of `layer`.
        scale: s. Defaults to `1.0`.
        activation: Activation, as in other layers of Keras. Defaults to
            `None`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    ```python
    layer = keras_bdl.extend.AdaptedLayer(
        keras.layers.Dense(8, use_bias=False),
        keras_bdl.layers.MeanFieldDense(2, use_bias=False, dataset_size=64),
        keras_bdl.layers.MeanFieldDense(8, dataset_size=64),
    )
    outputs = layer(x, training=True)  # of one posterior sample
    ```
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        down: keras.layers.Layer,
        up: keras.layers.Layer,
        *,
        scale: float = 1.0,
        activation: Any = None,
        **kwargs,
    ):
        check_number("scale", scale)
        super().__init__(**kwargs)
        self.layer, self.down, self.up = layer, down, up
        self.scale = scale
        self.activation = keras.activations.get(activation)
        self.supports_masking = layer.supports_masking
        for part in (layer,) if self.trainable else (layer, down, up):
            part.trainable = False

    @property
    def trainable(self) -> bool:
        """Whether A and B train."""
        return super().trainable

    @trainable.setter
    def trainable(self, value):
        keras.layers.Layer.trainable.fset(self, value)
        self.layer.trainable = False

    def build(self, input_shape):
        """Builds the three layers.

        Args:
            input_shape: Shape of the inputs.
        """
        for layer in (self.layer, self.down):
            if not layer.built:
                layer.build(input_shape)
        if not self.up.built:
            self.up.build(self.down.compute_output_shape(input_shape))

    def call(self, inputs: ArrayLike, training: bool | None = None) -> Any:
        """Returns (1).

        Args:
            inputs: x.
            training: Whether A and B draw their weights.
        """
        hidden = self.scale * self.down(inputs, training=training)
        outputs = self.layer(inputs) + self.up(hidden, training=training)
        return self.activation(outputs)

    def compute_mask(self, inputs, previous_mask=None):
        """Returns the mask of the frozen layer."""
        return self.layer.compute_mask(inputs, previous_mask)

    def compute_output_spec(self, inputs, training=None):
        """Returns shape and dtype of the outputs of the frozen layer.

        Args:
            inputs: A `keras.KerasTensor`.
            training: Has no effect on shape and dtype. Defaults to `None`.
        """
        return outputs_of_inner(self.layer, inputs)

    def compute_output_shape(self, input_shape):
        """Returns the output shape of the frozen layer."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self):
        """Returns all arguments."""
        return {
            **super().get_config(),
            **{
                name: keras.saving.serialize_keras_object(getattr(self, name))
                for name in ("layer", "down", "up")
            },
            "scale": self.scale,
            "activation": keras.activations.serialize(self.activation),
        }

    @classmethod
    def from_config(cls, config):
        """Returns the layer that `get_config` described."""
        parts = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("layer", "down", "up")
        }
        return cls(**{**config, **parts})
