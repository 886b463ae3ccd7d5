"""The conversion of layers with a low-rank adapter (LoRA)."""

import keras

from keras_bdl import _keras
from keras_bdl._random._seeds import sequence
from keras_bdl.conversion._replacement_table import RULES
from keras_bdl.curvature._rules._low_rank import low_rank_equations
from keras_bdl.layers._adapted_layer import AdaptedLayer

CONVOLUTIONS = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)


def frozen_layers(model: keras.Model) -> set[int]:
    """Returns the `id` of each layer that an `AdaptedLayer` keeps frozen.

    Args:
        model: A built model.
    """
    return {
        id(inner)
        for adapted_layer in _keras.all_layers(model)
        if isinstance(adapted_layer, AdaptedLayer)
        for inner in _keras.all_layers(adapted_layer.layer)
    }


def has_adapter(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer computes its kernel from an adapter.

    Args:
        layer: Any layer.
    """
    return bool(getattr(layer, "lora_enabled", False))


def converts_adapter(kind: str, layer: keras.layers.Layer) -> bool:
    """Returns whether a rule converts the adapter of a layer.

    Args:
        kind: A key of `RULES`.
        layer: A layer with an adapter.
    """
    if kind == "mc_dropout" or type(layer) not in RULES[kind]:
        return False
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
    kind: str, layer: keras.layers.Layer, config: dict, options: dict
) -> AdaptedLayer:
    """Returns a layer whose adapter has distributions over its weights.

    Args:
        kind: A key of `RULES`.
        layer: A layer with an adapter that a rule converts.
        config: The config of the layer.
        options: Arguments of the layers with distributions.
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
            RULES[kind][cls](
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
    layer: keras.layers.Layer, new: AdaptedLayer, means_from_weights: bool
) -> None:
    """Copies the weights of a layer to the result of `adapted`.

    Args:
        layer: The layer.
        new: The result of `adapted`, built.
        means_from_weights: Whether the factors and the bias of the layer become
            means. The frozen kernel is copied in any case.
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


def _factors(layer, config, bias, unbiased):
    """Returns class and arguments of the layers A and B of `AdaptedLayer`."""
    rank = layer.lora_rank
    if isinstance(layer, keras.layers.Dense):
        cls = keras.layers.Dense
        return (
            (cls, {"units": rank, **unbiased}),
            (cls, {"units": layer.units, **bias}),
        )
    if isinstance(layer, keras.layers.Embedding):
        options = {"mask_zero": layer.mask_zero}
        return (
            (
                keras.layers.Embedding,
                {
                    "input_dim": layer.input_dim,
                    "output_dim": rank,
                    **options,
                },
            ),
            (
                keras.layers.Dense,
                {"units": layer.output_dim, "use_bias": False},
            ),
        )
    if isinstance(layer, CONVOLUTIONS):
        names = (
            *("kernel_size", "strides", "padding"),
            *("dilation_rate", "data_format"),
        )
        options = {name: config[name] for name in names}
        one = {"kernel_size": 1, "data_format": layer.data_format}
        cls = type(layer)
        return (
            (cls, {"filters": rank, **options, **unbiased}),
            (cls, {"filters": layer.filters, **one, **bias}),
        )
    equations = low_rank_equations(layer)
    hidden = equations.first.split("->")[1]
    r = equations.second.split(",")[1][0]
    shape = list(layer.partial_output_shape)
    shape[hidden.index(r) - len(hidden)] = rank
    cls = keras.layers.EinsumDense
    return (
        (
            cls,
            {
                "equation": equations.first,
                "output_shape": shape,
            },
        ),
        (
            cls,
            {
                "equation": equations.second,
                "output_shape": layer.partial_output_shape,
                **bias,
            },
        ),
    )


def _regularized(cls, regularizer):
    """Returns the argument by which Keras regularizes both factors."""
    of_table = issubclass(cls, keras.layers.Embedding)
    name = "embeddings" if of_table else "kernel"
    return {f"{name}_regularizer": regularizer}
