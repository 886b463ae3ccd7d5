"""Low-rank adapters (LoRA) with distributions over their weights."""

from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._random._seeds import sequence
from keras_bdl.curvature._rules._low_rank import low_rank_equations
from keras_bdl.layers._mc_dropout import outputs_of_inner


@keras.saving.register_keras_serializable(package="keras_bdl")
class AdaptedLayer(keras.Layer):
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
        **kwargs: Arguments of `keras.Layer`.

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
        layer: keras.Layer,
        down: keras.Layer,
        up: keras.Layer,
        *,
        scale: float = 1.0,
        activation: Any = None,
        **kwargs: Any,
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
    def trainable(self, value: bool) -> None:
        keras.Layer.trainable.fset(self, value)
        self.layer.trainable = False

    def build(self, input_shape: Any) -> None:
        """Builds the three layers."""
        for layer in (self.layer, self.down):
            if not layer.built:
                layer.build(input_shape)
        if not self.up.built:
            self.up.build(self.down.compute_output_shape(input_shape))

    def call(self, inputs: ArrayLike, training: bool | None = None) -> Any:
        """Returns (1)."""
        hidden = self.scale * self.down(inputs, training=training)
        outputs = self.layer(inputs) + self.up(hidden, training=training)
        return self.activation(outputs)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Returns the mask of the frozen layer."""
        return self.layer.compute_mask(inputs, previous_mask)

    def compute_output_spec(
        self, inputs: keras.KerasTensor, training: bool | None = None
    ) -> keras.KerasTensor:
        """Returns shape and dtype of the outputs of the frozen layer."""
        return outputs_of_inner(self.layer, inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the output shape of the frozen layer."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict:
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
    def from_config(cls, config: dict) -> "AdaptedLayer":
        """Returns the layer that `get_config` described."""
        parts = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("layer", "down", "up")
        }
        return cls(**{**config, **parts})


CONVOLUTIONS = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)


def frozen_layers(model: keras.Model) -> set[int]:
    """Returns the `id` of each layer that an `AdaptedLayer` keeps frozen."""
    return {
        id(inner)
        for adapted_layer in _keras.all_layers(model)
        if isinstance(adapted_layer, AdaptedLayer)
        for inner in _keras.all_layers(adapted_layer.layer)
    }


def has_adapter(layer: keras.Layer) -> bool:
    """Returns whether a layer computes its kernel from an adapter."""
    return bool(getattr(layer, "lora_enabled", False))


def converts_adapter(layer: keras.Layer) -> bool:
    """Returns whether `adapted` takes a layer with an adapter."""
    if getattr(layer, "quantization_mode", None) is not None:
        return False
    if isinstance(layer, keras.layers.EinsumDense):
        equations = low_rank_equations(layer)
        return equations is not None and equations.a_first
    if isinstance(layer, CONVOLUTIONS):
        # `"causal"` pads the first of two convolutions like the only one.
        return layer.groups == 1
    return isinstance(layer, (keras.layers.Dense, keras.layers.Embedding))


def adapted(
    rules: dict[type, type], layer: keras.Layer, config: dict, options: dict
) -> AdaptedLayer:
    """Returns a layer whose adapter has distributions over its weights.

    `rules` are those of one kind, and `options` the arguments of the layers
    with distributions.
    """
    config = {k: v for k, v in config.items() if not k.startswith("lora_")}
    activation = config.pop("activation", None)
    name = config.pop("name")
    common = {"dtype": config["dtype"]}
    bias = {
        argument: config.pop(argument)
        for argument in list(config)
        if argument.startswith("bias_") or argument == "use_bias"
    }
    unbiased = {"use_bias": False} if "use_bias" in bias else {}
    down, up = _factors(layer, config, bias, unbiased)
    regularizer = config.get("kernel_regularizer") or config.get(
        "embeddings_regularizer"
    )
    seeds: list[dict] = [{}, {}]
    if options.get("seed") is not None:
        # The factors need different noise.
        state = sequence(options["seed"]).generate_state(2)
        seeds = [{"seed": int(seed)} for seed in state]
    made = []
    for (cls, arguments), seed, suffix in zip(
        (down, up), seeds, "ab", strict=True
    ):
        made.append(
            rules[cls](
                **arguments,
                **common,
                **_regularized(cls, regularizer),
                **{**options, **seed},
                name=f"{name}_lora_{suffix}",
            )
        )
    return AdaptedLayer(
        type(layer)(**{**config, **unbiased, "name": f"{name}_frozen"}),
        *made,
        scale=layer.lora_alpha / layer.lora_rank,
        activation=activation,
        name=name,
        trainable=layer.trainable,
        **common,
    )


def keep_adapter(
    layer: keras.Layer, new: AdaptedLayer, means_from_weights: bool
) -> None:
    """Copies the weights of a layer to the result of `adapted`.

    Without `means_from_weights`, only the frozen kernel is copied.
    """
    if isinstance(layer, keras.layers.Embedding):
        a, b, bias = layer.lora_embeddings_a, layer.lora_embeddings_b, None
    else:
        a, b, bias = layer.lora_kernel_a, layer.lora_kernel_b, layer.bias
    new.layer.weights[0].assign(_keras.stored_kernel(layer))
    if not means_from_weights:
        return
    for factor, part in ((a, new.down), (b, new.up)):
        mean = part.weight_posteriors[0].mean
        mean.assign(keras.ops.reshape(factor, mean.shape))
    if bias is not None:
        means = {p.name: p.mean for p in new.up.weight_posteriors}
        variables = {w.name: w for w in new.up.weights} | means
        variables["bias"].assign(bias)


def _factors(
    layer: keras.Layer, config: dict, bias: dict, unbiased: dict
) -> tuple[tuple[type, dict], tuple[type, dict]]:
    """Returns class and arguments of the layers A and B of `AdaptedLayer`."""
    rank, cls = layer.lora_rank, type(layer)
    if cls is keras.layers.Dense:
        return (
            (cls, {"units": rank, **unbiased}),
            (cls, {"units": layer.units, **bias}),
        )
    if cls is keras.layers.Embedding:
        table = {"input_dim": layer.input_dim, "mask_zero": layer.mask_zero}
        units = {"units": layer.output_dim, "use_bias": False}
        return (
            (cls, {"output_dim": rank, **table}),
            (keras.layers.Dense, units),
        )
    if cls in CONVOLUTIONS:
        names = ("kernel_size", "strides", "padding", "dilation_rate")
        options = {name: config[name] for name in (*names, "data_format")}
        one = {"kernel_size": 1, "data_format": layer.data_format}
        return (
            (cls, {"filters": rank, **options, **unbiased}),
            (cls, {"filters": layer.filters, **one, **bias}),
        )
    equations: Any = low_rank_equations(layer)
    hidden = equations.first.split("->")[1]
    r = equations.second.split(",")[1][0]
    shape = list(layer.partial_output_shape)
    shape[hidden.index(r) - len(hidden)] = rank
    down = {"equation": equations.first, "output_shape": shape}
    up = {
        "equation": equations.second,
        "output_shape": layer.partial_output_shape,
        **bias,
    }
    return (cls, down), (cls, up)


def _regularized(cls: type, regularizer: Any) -> dict[str, Any]:
    """Returns the argument by which Keras regularizes both factors."""
    of_table = issubclass(cls, keras.layers.Embedding)
    name = "embeddings" if of_table else "kernel"
    return {f"{name}_regularizer": regularizer}
