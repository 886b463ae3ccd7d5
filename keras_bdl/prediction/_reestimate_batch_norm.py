"""New estimates of BatchNorm statistics after a change of the weights."""

import math
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_number
from keras_bdl._data._batches import Batches
from keras_bdl._data._checked_inputs import check_model
from keras_bdl._data._preprocessed import preprocessed
from keras_bdl.prediction._batch_norm_forward import TrainingForward
from keras_bdl.prediction._batch_norm_forward import batch_norm_layers
from keras_bdl.prediction._batch_norm_forward import moving_statistics
from keras_bdl.prediction._stateless_call import values_of
from keras_bdl.prediction._traced import ModelCache
from keras_bdl.prediction._traced import references

_CACHE = ModelCache()


def reestimate_batch_norm(
    model: keras.Model,
    data: Data,
    *,
    fraction: float = 1.0,
    batch_size: int | None = None,
) -> None:
    """Sets the moving statistics of all BatchNorm layers to those of `data`.

    Call this function after the weights of a network changed, for example
    after weight averaging: moving statistics belong to the weights under
    which they were computed.

    The old mean and variance are discarded. The new ones are cumulative
    averages over batches. For a batch of b examples after n examples,

        mean <- mean + b / (n + b) (batch mean - mean)                    (1)

    The variance follows the same rule. The variance of a batch is the sum of
    squared deviations, divided by the number of values. The scale and offset
    (gamma, beta) are weights and stay.

    The model runs as in training, with dropout and augmentation, but nothing
    else in the model changes: no seed generator and no metric. A layer keeps
    its statistics if it has `trainable=False` or `momentum=1.0`, or if the
    model calls it with `training=False`. A layer that is called several times
    gets the average over its calls. Under a strategy, each batch goes to one
    replica.

    Args:
        model: A built Keras model. A model without BatchNorm does not change.
        data: Inputs or `(inputs, labels)`: arrays (several inputs as a list
            or a dictionary; a tuple means `(inputs, labels)`), a batched
            `tf.data.Dataset` or a `keras.utils.PyDataset`. The function does
            not shuffle: shuffle sorted examples first.
        fraction: Fraction of the data to use: evenly spaced examples of
            arrays, otherwise the first batches. Defaults to `1.0`.
        batch_size: Batch size for arrays. Defaults to `None`, 32.

    Example:

    ```python
    keras_bdl.prediction.reestimate_batch_norm(model, x)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section
          3.2; [Izmailov et al., 2018](https://arxiv.org/abs/1803.05407),
          section 3.3.
    """
    check_model(model)
    if not model.built:
        raise ValueError(
            "`model` must be built. Call it on a batch of inputs first. "
            f"Received: model={model.name!r}"
        )
    batches = batch_norm_batches(model, data, fraction, batch_size=batch_size)
    assign_statistics(batch_norm_statistics(model, batches, values_of(model)))


def batch_norm_batches(
    model: keras.Model,
    data: Data,
    fraction: float,
    *,
    batch_size: int | None,
    prefix: str = "",
) -> Batches:
    """Returns the `Batches` on which BatchNorm statistics are estimated.

    Args:
        model: The model, which may have a preprocessor.
        data: As in `reestimate_batch_norm`.
        fraction: Fraction of the data to use.
        batch_size: Batch size for arrays.
        prefix: Prefix of the caller's arguments `data` and `fraction`, for
            error messages. Defaults to `""`.
    """
    name = f"{prefix}data"
    check_number(f"{prefix}fraction", fraction, above=0.0, at_most=1.0)
    if hasattr(data, "__next__"):
        raise ValueError(
            f"`{name}` must be data that every posterior sample can read "
            "again: arrays, a `tf.data.Dataset` or a `keras.utils.PyDataset`. "
            f"Received: {name}={data}, which can be read once"
        )
    if isinstance(data, tuple):
        data = data[0]
    data, batch_size = preprocessed(model, data, batch_size)
    batches = Batches(data, batch_size=batch_size, name=name)
    if fraction == 1.0:
        return batches
    if batches.in_memory:
        return Batches(
            _spaced(batches.data, fraction), batch_size=batch_size, name=name
        )
    if batches.num_batches is None:
        raise ValueError(
            f"`{name}` must have a known number of batches if only a fraction "
            "of it is used. Take the batches yourself, with "
            "`.take(batches)`, and leave out the fraction. "
            f"Received: {prefix}fraction={fraction}, {name}={data}"
        )
    steps = math.ceil(fraction * batches.num_batches)
    return Batches(data, steps=steps, name=name)


def optional_batch_norm_batches(
    model: keras.Model, data: Data | None, fraction: float
) -> Batches | None:
    """Returns the `Batches` of the arguments of `keras_bdl.predict`.

    Args:
        model: The model, which may have a preprocessor.
        data: The argument `batch_norm_data`.
        fraction: The argument `batch_norm_fraction`.
    """
    if data is not None:
        # No batch size: the statistics depend on it, so it does not follow
        # that of the inputs.
        return batch_norm_batches(
            model, data, fraction, batch_size=None, prefix="batch_norm_"
        )
    if fraction != 1.0:
        raise ValueError(
            "`batch_norm_fraction` needs `batch_norm_data`. Give both or "
            f"neither. Received: batch_norm_fraction={fraction!r}, "
            "batch_norm_data=None"
        )
    return None


def batch_norm_statistics(
    model: keras.Model,
    batches: Batches,
    values: list,
    frozen: Iterable | None = None,
) -> list[tuple[Any, np.ndarray]]:
    """Returns pairs of a moving statistic and its new value.

    The new values follow (1) of `reestimate_batch_norm`.

    Args:
        model: A built Keras model, which does not change.
        batches: The batches to average over.
        values: A tensor for each of `model.variables`.
        frozen: The variables that were frozen in training. Defaults to `None`:
            those of the layers that are frozen now.
    """
    layers = batch_norm_layers(model, frozen)
    if not layers:
        return []
    # Which layers are frozen now decides how they are traced.
    key = references(layers), tuple(layer.trainable for layer in layers)
    forward = _CACHE.get(model, key, lambda: TrainingForward(model, layers))
    seen = 0
    averages: dict[int, np.ndarray] = {}
    for size, statistics in forward.over(batches, values):
        seen += size
        for index, value in statistics.items():
            value = np.asarray(value, "float64")
            average = averages.setdefault(index, np.zeros_like(value))
            average += (size / seen) * (value - average)  # (1)
    variables = moving_statistics(layers)
    return [
        (variables[i], _finite(a, variables[i])) for i, a in averages.items()
    ]


def assign_statistics(statistics: list[tuple[Any, np.ndarray]]) -> None:
    """Assigns the result of `batch_norm_statistics` to the model.

    Args:
        statistics: Pairs of a moving statistic and its new value.
    """
    for variable, value in statistics:
        variable.assign(value)


def warn_of_stale_statistics(
    model: keras.Model,
    user: str,
    *,
    frozen: Iterable | None = None,
    stacklevel: int,
) -> None:
    """Warns if BatchNorm statistics do not belong to the weights in use.

    Args:
        model: A built Keras model.
        user: Name of the object that uses other weights, for the message.
        frozen: The variables that were frozen in training. Defaults to `None`:
            those of the layers that are frozen now.
        stacklevel: Number of frames from the caller to the user's line, as in
            `warnings.warn`.
    """
    if batch_norm_layers(model, frozen):
        warnings.warn(
            f"{user} uses other weights than the trained ones, but the "
            "BatchNorm statistics belong to the trained weights. Give "
            "training inputs as `batch_norm_data`, or freeze the BatchNorm "
            "layers. Received: batch_norm_data=None",
            stacklevel=stacklevel + 1,
        )


def _finite(average, variable):
    if np.all(np.isfinite(average)):
        return average
    raise ValueError(
        "The BatchNorm statistics must be finite for the weights in use. "
        f"Received: NaN or infinity for {variable.path}. Use a posterior with "
        "a smaller variance or `scale`."
    )


def _spaced(arrays, fraction):
    length = len(keras.tree.flatten(arrays)[0])
    kept = math.ceil(fraction * length)
    rows = np.arange(kept) * length // kept
    return keras.tree.map_structure(lambda array: array[rows], arrays)
