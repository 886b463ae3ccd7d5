"""The statistics that BatchNorm takes of batches."""

import contextlib
import weakref

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl.prediction.batch_norm_layers import batch_norm_layers
from keras_bdl.prediction.batch_norm_layers import moving_statistics
from keras_bdl.prediction.traced import traced

# More than any seed is used in one batch.
_USES = 4096


class TrainingForward:
    """`model(x, training=True)`, which says what it would assign.

    Each replica takes whole batches: a part of one has other statistics.

    Args:
        model: A built Keras model.
    """

    def __init__(self, model):
        self._model = weakref.ref(model)
        self._alone = traced(model, self._call)
        self._shared = traced(model, self._call, sharded=True)

    def over(self, batches):
        """Yields the number of examples and the statistics of each batch.

        The latter are a dictionary from the position in `moving_statistics`
        to an array.

        Args:
            batches: The `Batches`.
        """
        model = self._model()
        replicas = model.distribute_strategy.num_replicas_in_sync
        if model.run_eagerly:
            replicas = 1
        seeds = [ops.convert_to_tensor(v) for v in _seed_states(model)]
        count = 0
        for group in _groups(batches, replicas):
            shared = len(group) == replicas > 1
            for part in [group] if shared else [[batch] for batch in group]:
                inputs = keras.tree.map_structure(
                    lambda *arrays: np.concatenate(arrays),
                    *(batch.inputs for batch in part),
                )
                forward = self._shared if shared else self._alone
                found = forward(inputs, seeds, tf.constant(count))
                found = {i: np.asarray(v) for i, v in found.items()}
                for row, batch in enumerate(part):
                    yield batch.size, {i: v[row] for i, v in found.items()}
                count += len(part)

    def _call(self, inputs, seeds, count):
        """Returns the statistics of the batch of this replica, on an axis.

        Args:
            inputs: The batch.
            seeds: The states of the model's seed generators.
            count: Number of the batch of the first replica.
        """
        model = self._model()
        layers = batch_norm_layers(model)
        inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs)
        statistics = moving_statistics(layers)
        state = [
            (variable, _moved_on(seed, count + _replica()))
            for variable, seed in zip(_seed_states(model), seeds, strict=True)
        ]
        state += [(v, ops.zeros(v.shape, v.dtype)) for v in statistics]
        with _bare_statistics(layers), _Record(state) as record:
            model(inputs, training=True)
        recorded = {
            index: record.assigned[id(variable)]
            for index, variable in enumerate(statistics)
            if id(variable) in record.assigned
        }
        return {
            i: ops.expand_dims(sum(values) / len(values), axis=0)
            for i, values in recorded.items()
        }


class _Record(keras.StatelessScope):
    """Remembers all that is assigned and assigns nothing."""

    def __init__(self, state_mapping):
        super().__init__(state_mapping)
        self.assigned = {}

    def add_update(self, update):
        variable, value = update
        self.assigned.setdefault(id(variable), []).append(value)
        super().add_update(update)


@contextlib.contextmanager
def _bare_statistics(layers):
    """Lets the layers assign the statistics of the batch alone."""
    kept = [(layer, layer.momentum, layer.synchronized) for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
            # Other replicas have other batches.
            layer.synchronized = False
        yield
    finally:
        for layer, momentum, synchronized in kept:
            layer.momentum, layer.synchronized = momentum, synchronized


def _groups(batches, size):
    """Yields lists of so many batches, all of one shape, or of fewer."""
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


def _seed_states(model):
    return [
        v
        for v in model.non_trainable_variables
        if v.dtype in ("uint32", "int32", "int64")
    ]


def _moved_on(seed, count):
    """Returns the state that a seed generator has for a batch."""
    if tuple(seed.shape) != (2,):
        return seed  # a counter of something else
    uses = tf.cast(tf.stack([0, count * _USES]), seed.dtype)
    return seed + uses
