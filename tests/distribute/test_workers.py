"""Repairs of Keras; `test_two_workers.py` trains with them."""

import contextlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.distribute import mend_keras

TRAINER = _keras._trainer_class()
MODULE = sys.modules[TRAINER.__module__]


class TwoWorkers(tf.distribute.MultiWorkerMirroredStrategy):
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


@pytest.fixture
def unmended(monkeypatch):
    """Takes the repairs away, and undoes those of a test."""
    for owner, name in (
        (MODULE, "reduce_per_replica"),
        (TRAINER, "_maybe_symbolic_build"),
    ):
        function = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, getattr(function, "__wrapped__", function)
        )


def built_with(model, strategy):
    """Builds a model as `fit` does; returns how batches were reduced."""
    model._distribute_strategy = strategy
    batch = (tf.distribute.DistributedValues(),)
    model._symbolic_build = lambda iterator=None, data_batch=None: None
    model._maybe_symbolic_build(iterator=[(0, 0, iter([batch]))])
    return strategy.axes


# A canary: where it fails, Keras needs one repair less.
def test_keras_needs_the_repairs(unmended):
    strategy = TwoWorkers()
    MODULE.reduce_per_replica({"loss": 0.0}, strategy, "mean")
    assert strategy.axes == [0]
    assert built_with(keras.Sequential(), TwoWorkers()) == [None]


def test_numbers_are_averaged_without_an_axis(unmended):
    mend_keras()
    strategy = TwoWorkers()
    logs = {"loss": 0.5, "nested": {"kl": 1.0}}
    for reduction in ("auto", "mean"):
        assert MODULE.reduce_per_replica(logs, strategy, reduction) == logs
    assert strategy.axes == [None] * 4


def test_no_batch_is_averaged(unmended):
    mend_keras()
    assert built_with(keras.Sequential(), TwoWorkers()) == []


def test_one_machine_keeps_the_function_of_keras(unmended):
    original = MODULE.reduce_per_replica
    mend_keras()
    strategy = tf.distribute.get_strategy()
    value = np.arange(3.0)
    for reduction in ("auto", "first", "mean"):
        assert MODULE.reduce_per_replica(value, strategy, reduction) is value
        assert original(value, strategy, reduction) is value


def test_a_second_call_replaces_nothing(unmended):
    mend_keras()
    first = MODULE.reduce_per_replica, TRAINER._maybe_symbolic_build
    mend_keras()
    assert (MODULE.reduce_per_replica, TRAINER._maybe_symbolic_build) == first
