"""The statistics that BatchNorm layers take of batches."""

import dataclasses
import weakref

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.prediction.stateless_call import moved_on
from keras_bdl.prediction.stateless_call import seed_states
from keras_bdl.prediction.stateless_call import stateless_call
from keras_bdl.prediction.traced import traced


def batch_norm_layers(model):
    """Returns the BatchNorm layers that training would update."""
    return [
        layer
        for layer in _keras.all_layers(model)
        if isinstance(layer, keras.layers.BatchNormalization)
        and layer.trainable
        and layer.momentum < 1.0
    ]


def moving_statistics(layers):
    """Returns the moving means and variances of BatchNorm layers."""
    return [
        v
        for layer in layers
        for v in (layer.moving_mean, layer.moving_variance)
    ]


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

    def over(self, batches, values):
        """Yields the number of examples and the statistics of each batch.

        The latter are a dictionary from the position in `moving_statistics`
        to an array.

        Args:
            batches: The `Batches`.
            values: A tensor for each of `model.variables`.
        """
        model = self._model()
        replicas = model.distribute_strategy.num_replicas_in_sync
        # Layers that share their statistics would take those of all batches.
        if model.run_eagerly or _any_synchronized(model):
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
        """Returns the statistics of the batch of this replica, on an axis.

        Args:
            inputs: The batch.
            values: A tensor for each of `model.variables`.
            count: Number of the batch of the first replica.
        """
        model = self._model()
        inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs)
        values = list(values)
        for i in seed_states(model):
            values[i] = moved_on(values[i], 0, count + _replica())
        gathered = [
            source
            for layer in batch_norm_layers(model)
            for source in _sources(layer)
        ]
        record = _Record(
            zip(model.variables, values, strict=True),
            [source.variable for source in gathered],
        )
        stateless_call(model, inputs, record, training=True)
        found = {}
        for index, source in enumerate(gathered):
            assigned = record.assigned[id(source.variable)]
            if assigned:
                batch = sum(map(source.of_batch, assigned)) / len(assigned)
                found[index] = ops.expand_dims(batch, axis=0)
        return found


class _Record(keras.StatelessScope):
    """Keeps what is assigned to moving statistics, which always read as 0.

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
    """A moving statistic that tells the statistic of a batch.

    Args:
        variable: Is assigned `momentum * old + (1 - momentum) * new`, where
            the old value is 0.
        momentum: As above.
        from_new: A function of `new` that returns the statistic.
    """

    variable: object
    momentum: float
    from_new: object

    def of_batch(self, assigned):
        return self.from_new(assigned / (1.0 - self.momentum))


def _sources(layer):
    """Returns the sources of the mean and the variance."""
    mean = _Source(layer.moving_mean, layer.momentum, lambda new: new)
    if not getattr(layer, "renorm", False):
        return mean, dataclasses.replace(mean, variable=layer.moving_variance)
    # Here the variance is computed from the moving standard deviation.
    variance = _Source(
        layer.moving_stddev,
        layer.momentum,
        lambda new: new**2 - layer.epsilon,
    )
    return mean, variance


def _any_synchronized(model):
    return any(layer.synchronized for layer in batch_norm_layers(model))


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
