"""Checks shared by the test files."""

import contextlib
import dataclasses
import gc
import inspect
import json
import socket
import typing

import keras
import numpy as np
import tensorflow as tf

from keras_bdl.prediction import PredictOptions

KERAS = tuple(map(int, keras.__version__.split(".")[:2]))
LITERT = (3, 13)  # the first version that exports it


def cross_entropy():
    """Returns the loss of labels that are integers and of logits."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@contextlib.contextmanager
def dtype_policy(name):
    """Sets the dtype policy of the layers that are made in a block."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def optimize_graphs(on):
    """Sets whether TensorFlow rewrites the graphs that run from here on."""
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": not on}
    )


@contextlib.contextmanager
def own_garbage():
    """Lets `gc.collect` search the objects of a block alone.

    A search through those of all earlier tests takes seconds.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def options_of(taker):
    """Returns the `TypedDict` of the `**options` of a class, or `None`."""
    try:
        parameters = inspect.signature(taker).parameters.values()
    except (TypeError, ValueError):
        return None
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            if typing.get_origin(p.annotation) is typing.Unpack:
                return typing.get_args(p.annotation)[0]
    return None


def arguments_of(cls):
    """Returns the defaults of the arguments of a class, by their names.

    Options that a class passes on have the default of the base that takes them.
    """
    if typing.is_typeddict(cls):
        return {}
    shown = inspect.signature(cls).parameters.values()
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = {p.name: p.default for p in shown if p.kind not in rest}
    kind = options_of(cls)
    passed = kind.__annotations__ if kind else ()
    for owner in cls.__mro__:
        if "__init__" in vars(owner):
            for p in inspect.signature(owner.__init__).parameters.values():
                if p.name in passed and p.kind not in rest:
                    found.setdefault(p.name, p.default)
    return found


def check_config(cls, **kwargs):
    """Every constructor argument, given a non-default value, survives."""
    own = {
        p.name: p.default
        for p in inspect.signature(cls).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    }
    assert set(kwargs) == set(own), "pass every argument of __init__"
    for name, value in kwargs.items():
        assert value != own[name], f"{name}: the default value shows nothing"

    instance = cls(**kwargs)
    config = instance.get_config()
    missing = set(own) - set(config)
    assert not missing, f"not in get_config: {missing}"
    for name, value in kwargs.items():
        if isinstance(value, float):  # may have passed through a variable
            np.testing.assert_allclose(config[name], value, rtol=1e-6)
        else:
            assert config[name] == value, name

    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(instance)
    )
    assert type(revived) is cls
    assert revived.get_config() == config


def assert_equal(arrays, others):
    """Compares two lists of arrays exactly."""
    for array, other in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(array, other)


def assert_moment(actual, expected, stderr, sigmas=5.0):
    """Compares a Monte-Carlo estimate with the tolerance it deserves."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=sigmas * stderr)


def two_workers():
    """Returns the `TF_CONFIG` of each of two workers on this machine."""
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return [
        json.dumps(
            {
                "cluster": {"worker": addresses},
                "task": {"type": "worker", "index": index},
            }
        )
        for index in range(2)
    ]


def predict_arguments(**given):
    """Returns arguments of `predict`, with those of its options together."""
    names = {field.name for field in dataclasses.fields(PredictOptions)}
    chosen = {name: given.pop(name) for name in names & set(given)}
    return {**given, "options": PredictOptions(**chosen)} if chosen else given
