"""The frozen weights of a model, which a posterior does not cover."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bdl import _keras

# Entries of each variable that go into a fingerprint.
_ENTRIES = 256


def frozen_variables(
    model: keras.Model, trained: Sequence[Any] | None = None
) -> list:
    """Returns the weights that training does not change.

    These are the weights of a layer with `trainable=False`, the kernel of a
    layer with `enable_lora`, and all weights of a quantised layer but its
    adapter. The BatchNorm statistics of other layers change in training.

    Args:
        model: A built Keras model.
        trained: The variables that training moved, if layers were frozen or
            unfrozen since. Defaults to `None`: those that are trainable now.
    """
    if trained is None:
        trained = model.trainable_variables
    moved = {id(v) for v in trained}
    constant: set[int] = set()
    for layer in _keras.all_layers(model):
        quantised = getattr(layer, "quantization_mode", None) is not None
        learns, others = _keras.own_variables(layer)
        constant.update(id(v) for v in learns)
        was_trained = (
            any(id(v) in moved for v in learns) if learns else layer.trainable
        )
        if quantised or not was_trained:
            constant.update(id(v) for v in others)
    return [
        v for v in model.weights if id(v) in constant and id(v) not in moved
    ]


def made_trainable(layer: keras.layers.Layer) -> list:
    """Returns the weights that are trainable if no layer is frozen.

    Args:
        layer: A built Keras model or layer.
    """
    made = {
        id(v)
        for part in _keras.all_layers(layer)
        for v in _keras.own_variables(part)[0]
    }
    return [v for v in layer.weights if id(v) in made]


def unfrozen_weights(
    model: keras.Model, frozen: Sequence[Any] | None = None
) -> list:
    """Returns `model.weights` without the frozen variables.

    Args:
        model: A built Keras model.
        frozen: The frozen variables. Defaults to `None`: those that are frozen
            now.
    """
    if frozen is None:
        frozen = frozen_variables(model)
    left_out = {id(v) for v in frozen}
    return [v for v in model.weights if id(v) not in left_out]


def check_frozen_weights(
    model: keras.Model, expected: str | None, frozen: Sequence[Any]
) -> None:
    """Raises an error if a posterior was trained beside other frozen weights.

    Args:
        model: A built Keras model.
        expected: The `fingerprint` of the posterior. `None` accepts any model.
        frozen: The variables of the model that were frozen in training.
    """
    if expected not in (None, fingerprint(model, frozen)):
        raise ValueError(
            "The posterior must be used with the frozen weights that it "
            "was trained with. Load the same pretrained weights, and "
            "freeze the same layers. A `.keras` file does not keep them if "
            "there are adapters: Keras adds adapters to the kernels. "
            f"Received: model={model.name!r} with other frozen weights"
        )


def check_adapters(model: keras.Model) -> None:
    """Raises an error for adapters (LoRA) that Keras has merged.

    A `.keras` file has the sum of kernel and adapter as the kernel, and zeros
    as both factors of the adapter. Samples around two zeros are no samples of
    the posterior that was learned.

    Args:
        model: A built Keras model.
    """
    for layer in _keras.all_layers(model):
        if not getattr(layer, "lora_enabled", False):
            continue
        factors = [
            v
            for v in _keras.own_variables(layer)[0]
            if v.name.startswith("lora_") and v.name.endswith(("_a", "_b"))
        ]
        if len(factors) == 2 and not any(
            np.any(keras.ops.convert_to_numpy(v)) for v in factors
        ):
            raise ValueError(
                "A posterior of adapters (LoRA) needs the trained adapters. "
                "Keras adds them to the kernels when it writes a `.keras` or "
                "weights file, and sets them to zero. Save the posterior with "
                "`posterior.save` before, and load it into the original "
                "network with `enable_lora`. Received: "
                f"{layer.name!r}, whose adapter is zero"
            )


def fingerprint(
    model: keras.Model, frozen: Sequence[Any] | None = None
) -> str | None:
    """Returns a short text that differs for other frozen weights.

    The text depends on the shape of each frozen variable and on up to 256 of
    its numbers. It is `None` if nothing is frozen.

    Args:
        model: A built Keras model.
        frozen: The frozen variables. Defaults to `None`: those that are frozen
            now.
    """
    if frozen is None:
        frozen = frozen_variables(model)
    if not frozen:
        return None
    found = hashlib.blake2b(digest_size=16)
    for variable in frozen:
        step = max(1, -(-math.prod(variable.shape) // _ENTRIES))
        numbers = keras.ops.reshape(variable, (-1,))[::step]
        numbers = keras.ops.convert_to_numpy(keras.ops.cast(numbers, "float32"))
        found.update(f"{tuple(variable.shape)}".encode())
        found.update(np.ascontiguousarray(numbers).tobytes())
    return found.hexdigest()
