"""Check that the Kronecker factors of a model fit into memory."""

import math

import keras

from keras_bdl import _keras
from keras_bdl.memory import check_memory

_FACTORED = (
    keras.layers.Dense,
    keras.layers.Conv1D,
    keras.layers.Conv2D,
    keras.layers.Conv3D,
)


def check_memory_of_factors(model: keras.Model, variables: list) -> None:
    """Raises an error if the Kronecker factors do not fit into memory.

    Only dense layers and convolutions count. They have almost all weights.

    Args:
        model: A built Keras model.
        variables: Variables whose information is computed.
    """
    uncertain = {id(variable) for variable in variables}
    entries = 0
    for layer in _keras.all_layers(model):
        if not isinstance(layer, _FACTORED):
            continue
        kernel = layer.trainable_variables[:1]
        if kernel and id(kernel[0]) in uncertain:
            *inputs, outputs = kernel[0].shape
            entries += (math.prod(inputs) + 1) ** 2 + outputs**2
    check_memory(
        "The Kronecker factors of `model`",
        # The sums and the factors of one batch, then eigenvectors in float64.
        16 * entries,
        'Pass `subset="last_layer"` or `structure="diagonal"`.',
    )
