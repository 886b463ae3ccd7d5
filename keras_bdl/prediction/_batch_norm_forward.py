"""The means and variances that BatchNorm layers compute for batches."""

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._data._batches import Batches
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.prediction._stateless_call import moved_on
from keras_bdl.prediction._stateless_call import seed_states
from keras_bdl.prediction._stateless_call import stateless_call
from keras_bdl.prediction._traced import traced


def batch_norm_layers(
    model: keras.Model, frozen: Iterable | None = None
) -> list:
    """Returns the BatchNorm layers whose statistics training would update.

    Args:
        model: A Keras model.
        frozen: The variables that were frozen in training. Defaults to `None`:
            those of the layers that are frozen now.
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
    """Returns the moving mean and variance of each layer, in one list.

    Args:
        layers: BatchNorm layers.
    """
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

    Args:
        model: A built Keras model.
        layers: The BatchNorm layers whose statistics are needed. A layer that
            was frozen after training computes as before.
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

        Args:
            batches: The batches.
            values: A tensor for each of `model.variables`.
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
                found = forward(inputs, values, tf.constant(count))
                found = {i: np.asarray(v) for i, v in found.items()}
                for row, batch in enumerate(part):
                    yield batch.size, {i: v[row] for i, v in found.items()}
                count += len(part)

    def _call(self, inputs, values, count):
        """Returns the statistics of this replica's batch, each as one row.

        Args:
            inputs: The batch.
            values: A tensor for each of `model.variables`.
            count: Index of the batch of the first replica.
        """
        model = self._model()
        inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs)
        values = list(values)
        for i in seed_states(model):
            values[i] = moved_on(values[i], 0, count + _replica())
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

    def _living(self):
        """Returns the layers, which live as long as the model."""
        layers: list[Any] = [reference() for reference in self._batch_norms]
        return layers


def _call_unfrozen(layer, original, *args, **kwargs):
    """Calls a frozen layer as if it were trainable.

    The layer itself does not change: another thread may use it.
    """
    del original  # would read `trainable` of the layer
    twin = object.__new__(type(layer))
    vars(twin).update(vars(layer), _trainable=True)
    return type(layer).call(twin, *args, **kwargs)


class _Record(keras.StatelessScope):
    """A scope in which moving statistics are 0, and that records assignments.

    Args:
        values: Pairs of a variable and a tensor.
        statistics: The moving statistics.
    """

    def __init__(self, values, statistics):
        zeros = [(v, ops.zeros(v.shape, v.dtype)) for v in statistics]
        super().__init__([*values, *zeros])
        self.assigned = {id(v): [] for v in statistics}

    def add_update(self, update):
        variable, value = update
        if id(variable) in self.assigned:
            self.assigned[id(variable)].append(value)
        else:
            super().add_update(update)


@dataclasses.dataclass(frozen=True)
class _Source:
    """Computes the statistic of a batch from the update of a moving statistic.

    Args:
        variable: Variable to which the layer assigns
            `momentum * old + (1 - momentum) * new`. During this pass, the layer
            reads 0 as `old`, so `of_batch` can compute `new` from the assigned
            value.
        momentum: Momentum of the layer.
        from_new: Function from `new` to the statistic.
    """

    variable: Any
    momentum: float
    from_new: Callable

    def of_batch(self, assigned):
        return self.from_new(assigned / (1.0 - self.momentum))


def _sources(layer):
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


def _groups(batches, size):
    """Yields lists of at most `size` batches of the same shape."""
    group = []
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


def _shapes(batch):
    return [array.shape for array in keras.tree.flatten(batch.inputs)]


def _replica():
    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group
