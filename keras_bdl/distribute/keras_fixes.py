"""What `fit` of Keras needs to run on several machines.

`keras.src` is imported here, and nowhere else for this purpose: the step that
reduces the logs is no method of a model, and has no public name; nor has the
seed of the program.
"""

import contextlib
import functools

import tensorflow as tf
from keras import tree
from keras.src.backend.tensorflow import trainer as keras_trainer
from keras.src.utils.rng_utils import get_random_seed

_MULTI_WORKER = tf.distribute.MultiWorkerMirroredStrategy


def mend_keras():
    """Makes `fit`, `evaluate` and `predict` of Keras run on several machines.

    With Keras 3.15 and others all models fail under a
    `tf.distribute.MultiWorkerMirroredStrategy`, in two places:

    - the batch that a model is built with is averaged over the replicas,
      which the type and the shape of data need not allow; the first batch
      that lies here is as good;
    - the logs of a step are averaged over an axis, which numbers do not have.

    Both are replaced, for this process and such strategies alone; in a Keras
    that does right, nothing is. `keras_bdl.Model` and
    `keras_bdl.distribute.strategy("multi_worker")` see to it themselves; with
    a plain `keras.Model` under a strategy that was made otherwise, call this
    before `fit`.

    Reference:
        - Keras, issue 20585
    """
    if _averages_numbers_over_an_axis():
        keras_trainer.reduce_per_replica = _reduced(
            keras_trainer.reduce_per_replica
        )
    if _averages_the_first_batch():
        trainer = keras_trainer.TensorFlowTrainer
        trainer._maybe_symbolic_build = _built(trainer._maybe_symbolic_build)


def in_several_workers(strategy) -> bool:
    """Whether a strategy has replicas on more than one machine."""
    return (
        isinstance(strategy, _MULTI_WORKER)
        and strategy.extended._in_multi_worker_mode()
    )


def given_seed():
    """Returns what `keras.utils.set_random_seed` was given, or `None`."""
    return get_random_seed()


def build_with_a_local_batch(model, iterator):
    """Builds a model as `fit` does, with the batch of the first replica here.

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
            model._symbolic_build(data_batch=batch)
        return


def _reduced(reduce_per_replica):
    @functools.wraps(reduce_per_replica)
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


def _built(maybe_symbolic_build):
    @functools.wraps(maybe_symbolic_build)
    def mended(self, iterator=None, data_batch=None):
        if iterator is None or not in_several_workers(self.distribute_strategy):
            maybe_symbolic_build(self, iterator, data_batch)
        else:
            build_with_a_local_batch(self, iterator)

    return mended


class _Recorder(_MULTI_WORKER):
    """Stands in for a strategy of two workers, and notes what it is asked."""

    def __init__(self):
        self.axes = []

    @property
    def extended(self):
        return self

    def _in_multi_worker_mode(self):
        return True

    def scope(self):
        return contextlib.nullcontext()

    def experimental_local_results(self, value):
        return (value,)

    def reduce(self, op, value, axis="none given"):
        self.axes.append(axis)
        return value


class _Recorded:
    """Stands in for a model under such a strategy."""

    def __init__(self):
        self.distribute_strategy = self._distribute_strategy = _Recorder()

    def _symbolic_build(self, data_batch):
        pass


def _averages_numbers_over_an_axis():
    recorder = _Recorder()
    keras_trainer.reduce_per_replica({"loss": 0.0}, recorder, "mean")
    return recorder.axes == [0]


def _averages_the_first_batch():
    recorded = _Recorded()
    batch = (tf.distribute.DistributedValues(),)
    keras_trainer.TensorFlowTrainer._maybe_symbolic_build(
        recorded, iterator=[(0, 0, iter([batch]))]
    )
    return bool(recorded.distribute_strategy.axes)
