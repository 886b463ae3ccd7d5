"""Estimating BatchNorm statistics again after a change of the weights."""

import math
import numbers

import keras
import numpy as np

from keras_bdl.data.batches import Batches
from keras_bdl.data.checked_inputs import check_model
from keras_bdl.prediction.batch_statistics import TrainingForward
from keras_bdl.prediction.batch_statistics import batch_norm_layers
from keras_bdl.prediction.batch_statistics import moving_statistics
from keras_bdl.prediction.stateless_call import values_of
from keras_bdl.prediction.traced import ModelCache
from keras_bdl.prediction.traced import references

_CACHE = ModelCache()


def reestimate_batch_norm(
    model, data, fraction: float = 1.0, batch_size: int | None = None
):
    """Sets the moving statistics of all BatchNorm layers to those of `data`.

    They belong to the weights they were gathered under: once the weights
    change, they are wrong. Mean and variance are forgotten (gamma and beta
    are weights and stay) and become cumulative averages over batches of size
    b, after n examples,

        mean <- mean + b / (n + b) (batch mean - mean)                    (1)

    and so for the variance of a batch, which divides by its count. The model
    runs as in training, dropout and augmentation included, and nothing else
    in it changes: no seed generator, no metric, no momentum. A layer with
    `trainable=False` or `momentum=1.0`, or one that the model calls with
    `training=False`, keeps its statistics; one that is called several times
    gets the average over its calls. Under a strategy the replicas take turns
    at the batches.

    Args:
        model: A built Keras model. Without BatchNorm, nothing is done.
        data: Inputs or `(inputs, labels)`: arrays (several inputs as a list
            or a dictionary; a tuple has labels), a batched
            `tf.data.Dataset` or a `keras.utils.PyDataset`. Batches are taken
            as they come: sorted examples have to be shuffled first.
        fraction: The part of the data to use. Of arrays, evenly spaced
            examples; otherwise the first batches. Defaults to `1.0`.
        batch_size: For arrays. Defaults to `None`, 32.

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
    batches = batch_norm_batches(data, fraction, batch_size)
    assign_statistics(batch_norm_statistics(model, batches, values_of(model)))


def batch_norm_batches(data, fraction, batch_size, prefix: str = ""):
    """Returns the `Batches` that statistics are estimated on.

    Args:
        data: Of `reestimate_batch_norm`, as the next two.
        fraction: Part of the data to use.
        batch_size: For arrays.
        prefix: What the caller puts before the names of its arguments `data`
            and `fraction`. Defaults to `""`.
    """
    name = f"{prefix}data"
    if not isinstance(fraction, numbers.Real) or not 0.0 < fraction <= 1.0:
        raise ValueError(
            f"`{prefix}fraction` must be above 0 and at most 1, the part of "
            f"`{name}` to use. Received: {prefix}fraction={fraction!r}"
        )
    if hasattr(data, "__next__"):
        raise ValueError(
            f"`{name}` must be data that can be read again for every draw: "
            "arrays, a `tf.data.Dataset` or a `keras.utils.PyDataset`. "
            f"Received: {name}={data}, which one pass uses up"
        )
    if isinstance(data, tuple):
        data = data[0]
    batches = Batches(data, batch_size, name=name)
    if fraction == 1.0:
        return batches
    if batches.in_memory:
        return Batches(_spaced(batches.data, fraction), batch_size, name=name)
    if batches.num_batches is None:
        raise ValueError(
            f"`{name}` must have a known number of batches where a fraction "
            "of it is asked for. Take the part yourself, with "
            "`.take(batches)`, and leave the fraction at 1. "
            f"Received: {prefix}fraction={fraction}, {name}={data}"
        )
    steps = math.ceil(fraction * batches.num_batches)
    return Batches(data, steps=steps, name=name)


def batch_norm_statistics(model, batches, values):
    """Returns pairs of a moving statistic and its new value, by (1).

    Args:
        model: A built Keras model, which is left unchanged.
        batches: The `Batches`.
        values: A tensor for each of `model.variables`.
    """
    layers = batch_norm_layers(model)
    if not layers:
        return []
    key = references(layers)
    forward = _CACHE.get(model, key, lambda: TrainingForward(model))
    seen = 0
    averages = {}
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


def assign_statistics(statistics):
    """Puts what `batch_norm_statistics` returned into the model."""
    for variable, value in statistics:
        variable.assign(value)


def _finite(average, variable):
    if np.all(np.isfinite(average)):
        return average
    raise ValueError(
        "The BatchNorm statistics must be finite under the weights in the "
        f"model. Received: NaN or infinity for {variable.path}. Was the "
        "posterior drawn with too large a variance?"
    )


def _spaced(arrays, fraction):
    length = len(keras.tree.flatten(arrays)[0])
    kept = math.ceil(fraction * length)
    rows = np.arange(kept) * length // kept
    return keras.tree.map_structure(lambda array: array[rows], arrays)
