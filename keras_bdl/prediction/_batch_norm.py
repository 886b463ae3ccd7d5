"""BatchNorm statistics for weights that training did not visit."""

import contextlib
import dataclasses
import functools
import math
import warnings
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Data
from keras_bdl._arguments import check_number
from keras_bdl._backend import replica_id
from keras_bdl._data._batches import Batch
from keras_bdl._data._batches import Batches
from keras_bdl._data._batches import preprocessed
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.prediction._stateless_call import ModelCache
from keras_bdl.prediction._stateless_call import check_model
from keras_bdl.prediction._stateless_call import moved_on
from keras_bdl.prediction._stateless_call import references
from keras_bdl.prediction._stateless_call import seed_states
from keras_bdl.prediction._stateless_call import stateless_call
from keras_bdl.prediction._stateless_call import traced
from keras_bdl.prediction._stateless_call import values_of

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

    `prefix` is that of the caller's arguments `data` and `fraction`.
    """
    name = f"{prefix}data"
    check_number(f"{prefix}fraction", fraction, above=0.0, at_most=1.0)
    if data is None:
        raise ValueError(
            f"`{prefix}fraction` needs `{name}`. Give both or neither. "
            f"Received: {prefix}fraction={fraction!r}, {name}=None"
        )
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


def batch_norm_statistics(
    model: keras.Model,
    batches: Batches,
    values: list,
    frozen: Iterable | None = None,
) -> list[tuple[Any, np.ndarray]]:
    """Returns pairs of a moving statistic and its new value.

    The new values follow (1) of `reestimate_batch_norm`.
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
    """Assigns the result of `batch_norm_statistics` to the model."""
    for variable, value in statistics:
        variable.assign(value)


def warn_of_stale_statistics(
    model: keras.Model,
    user: str,
    *,
    frozen: Iterable | None = None,
    stacklevel: int,
) -> None:
    """Warns if BatchNorm statistics do not belong to the weights in use."""
    if batch_norm_layers(model, frozen):
        warnings.warn(
            f"{user} uses other weights than the trained ones, but the "
            "BatchNorm statistics belong to the trained weights. Give "
            "training inputs as `batch_norm_data`, or freeze the BatchNorm "
            "layers. Received: batch_norm_data=None",
            stacklevel=stacklevel + 1,
        )


def _finite(average: np.ndarray, variable: Any) -> np.ndarray:
    if np.all(np.isfinite(average)):
        return average
    raise ValueError(
        "The BatchNorm statistics must be finite for the weights in use. "
        f"Received: NaN or infinity for {variable.path}. Use a posterior with "
        "a smaller variance or `scale`."
    )


def _spaced(arrays: Any, fraction: float) -> Any:
    length = len(keras.tree.flatten(arrays)[0])
    kept = math.ceil(fraction * length)
    rows = np.arange(kept) * length // kept
    return keras.tree.map_structure(lambda array: array[rows], arrays)


def batch_norm_layers(
    model: keras.Model, frozen: Iterable | None = None
) -> list:
    """Returns the BatchNorm layers whose statistics training would update.

    `frozen` are the variables that were frozen in training; `None` means those
    of the layers that are frozen now.
    """
    layers = [
        layer
        for layer in _keras.all_layers(model)
        if isinstance(layer, keras.layers.BatchNormalization)
        and layer.momentum < 1.0
    ]
    if frozen is None:
        return [layer for layer in layers if layer.trainable]
    constant = {id(v) for v in frozen}
    return [one for one in layers if id(one.moving_mean) not in constant]


def moving_statistics(layers: Iterable) -> list:
    """Returns the moving mean and variance of each layer, in one list."""
    return [
        v
        for layer in layers
        for v in (layer.moving_mean, layer.moving_variance)
    ]


class TrainingForward:
    """Computes the BatchNorm statistics of each batch as in training.

    The forward pass is `model(x, training=True)`, but the model does not
    change. Each replica gets whole batches, because the statistics of a part
    differ from those of the batch.
    """

    def __init__(self, model: keras.Model, layers: list):
        self._model = weakref.ref(model)
        self._batch_norms = [weakref.ref(layer) for layer in layers]
        self._alone = traced(model, self._call)
        self._shared = traced(model, self._call, sharded=True)

    def over(
        self, batches: Batches, values: list
    ) -> Iterator[tuple[int, dict[int, np.ndarray]]]:
        """Yields the number of examples and the statistics of each batch.

        The statistics are a dictionary from the position in
        `moving_statistics` to an array.
        """
        model: Any = self._model()
        replicas = model.distribute_strategy.num_replicas_in_sync
        # Synchronized layers would average the batches of all replicas.
        if model.run_eagerly or any(
            layer.synchronized for layer in self._living()
        ):
            replicas = 1
        count = 0
        for group in _groups(batches, replicas):
            shared = len(group) == replicas > 1
            for part in [group] if shared else [[batch] for batch in group]:
                inputs = keras.tree.map_structure(
                    lambda *arrays: np.concatenate(arrays),
                    *(batch.inputs for batch in part),
                )
                forward = self._shared if shared else self._alone
                found = forward(inputs, values, ops.convert_to_tensor(count))
                found = {i: np.asarray(v) for i, v in found.items()}
                for row, batch in enumerate(part):
                    yield batch.size, {i: v[row] for i, v in found.items()}
                count += len(part)

    def _call(
        self, inputs: Any, values: list, count: Any
    ) -> dict[int, keras.KerasTensor]:
        """Returns the statistics of this replica's batch, each as one row."""
        model: Any = self._model()
        inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs)
        values = list(values)
        for i in seed_states(model):
            values[i] = moved_on(values[i], 0, count + replica_id())
        layers = self._living()
        gathered = [source for layer in layers for source in _sources(layer)]
        record = _Record(
            zip(model.variables, values, strict=True),
            [source.variable for source in gathered],
        )
        with contextlib.ExitStack() as stack:
            for layer in layers:
                if not layer.trainable:
                    unfrozen = functools.partial(_call_unfrozen, layer)
                    stack.enter_context(replaced(layer, "call", unfrozen))
            stateless_call(model, inputs, record, training=True)
        found = {}
        for index, source in enumerate(gathered):
            assigned = record.assigned[id(source.variable)]
            if assigned:
                batch = sum(map(source.of_batch, assigned)) / len(assigned)
                found[index] = ops.expand_dims(batch, axis=0)
        return found

    def _living(self) -> list[Any]:
        """Returns the layers, which live as long as the model."""
        return [reference() for reference in self._batch_norms]


def _call_unfrozen(layer: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a frozen layer as if it were trainable.

    The layer itself does not change: another thread may use it.
    """
    del original  # would read `trainable` of the layer
    twin = object.__new__(type(layer))
    vars(twin).update(vars(layer), _trainable=True)
    return type(layer).call(twin, *args, **kwargs)


class _Record(keras.StatelessScope):
    """A scope with moving statistics of 0 that records their assignments."""

    def __init__(self, values: Iterable, statistics: list):
        zeros = [(v, ops.zeros(v.shape, v.dtype)) for v in statistics]
        super().__init__([*values, *zeros])
        self.assigned: dict[int, list] = {id(v): [] for v in statistics}

    def add_update(self, update: tuple) -> None:
        variable, value = update
        if id(variable) in self.assigned:
            self.assigned[id(variable)].append(value)
        else:
            super().add_update(update)


@dataclasses.dataclass(frozen=True)
class _Source:
    """Computes the statistic of a batch from an update of the moving one.

    The layer assigns `momentum * old + (1 - momentum) * new`. In this pass it
    reads 0 as `old`, so the assigned value gives `new`, of which `from_new`
    makes the statistic.
    """

    variable: Any
    momentum: float
    from_new: Callable

    def of_batch(self, assigned: Any) -> Any:
        return self.from_new(assigned / (1.0 - self.momentum))


def _sources(layer: Any) -> tuple[_Source, _Source]:
    """Returns the `_Source` of the mean and that of the variance."""
    mean = _Source(layer.moving_mean, layer.momentum, lambda new: new)
    if not getattr(layer, "renorm", False):
        return mean, dataclasses.replace(mean, variable=layer.moving_variance)
    # With `renorm`, Keras keeps a moving standard deviation.
    variance = _Source(
        layer.moving_stddev,
        layer.momentum,
        lambda new: new**2 - layer.epsilon,
    )
    return mean, variance


def _groups(batches: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """Yields lists of at most `size` batches of the same shape."""
    group: list[Batch] = []
    for batch in batches:
        if group and _shapes(batch) != _shapes(group[0]):
            yield group
            group = []
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _shapes(batch: Batch) -> list[tuple]:
    return [array.shape for array in keras.tree.flatten(batch.inputs)]
