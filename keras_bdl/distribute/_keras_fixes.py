"""Repairs of Keras's `fit` for training on several machines."""

from typing import Any

import keras
import tensorflow as tf
from keras import tree

from keras_bdl import _keras


def mend_keras() -> None:
    """Makes `fit`, `evaluate` and `predict` of Keras run on several machines.

    With Keras 3.12 to 3.15, all models fail under a
    `tf.distribute.MultiWorkerMirroredStrategy` with several workers:

    - Keras averages the first batch over the replicas, to build the model.
      Batches of integers, or of unequal sizes, have no average. The repair
      builds the model with the batch of the first replica of the process.
    - Keras averages the logs of a step over an axis, but a log is a number
      without axes. The repair averages over the replicas.

    Each call after the first does nothing. The repairs last until the process
    ends, and act only under such strategies. `keras_bdl.Model` and
    `keras_bdl.distribute.strategy("multi_worker")` call this function. Call
    this function yourself if you made the strategy, before `fit` of a plain
    `keras.Model`.

    Reference:
        - Keras, issue 20585
    """
    _keras.wrap_reduction_of_logs(_with_averages_of_numbers)
    _keras.wrap_build_before_fit(_with_one_local_batch)


def in_several_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy has replicas on more than one machine."""
    return isinstance(
        strategy, tf.distribute.MultiWorkerMirroredStrategy
    ) and _keras.in_several_processes(strategy)


def build_with_a_local_batch(model: keras.Model, iterator: Any) -> None:
    """Builds a model as `fit` does, with the batch of the first local replica.

    Args:
        model: A Keras model.
        iterator: The epoch iterator of `fit`.
    """
    strategy = model.distribute_strategy
    for _, _, batches in iterator:
        batch = tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0],
            next(batches),
        )
        with strategy.scope():
            _keras.symbolic_build(model, batch)
        return


def _with_averages_of_numbers(reduce_per_replica):
    def mended(values, strategy, reduction):
        if not in_several_workers(strategy) or reduction not in (
            "auto",
            "mean",
        ):
            return reduce_per_replica(values, strategy, reduction)
        return tree.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return mended


def _with_one_local_batch(maybe_symbolic_build):
    def mended(self, iterator=None, data_batch=None):
        if iterator is None or not in_several_workers(self.distribute_strategy):
            maybe_symbolic_build(self, iterator, data_batch)
        else:
            build_with_a_local_batch(self, iterator)

    return mended
