"""Every public signature says which types it takes and returns."""

import inspect

import keras
import pytest

import keras_bdl

FOLDERS = {
    name: getattr(keras_bdl, name)
    for name in keras_bdl.__all__
    if inspect.ismodule(getattr(keras_bdl, name))
} | {"keras_bdl": keras_bdl}

# Overrides keep the signature of Keras, which has no annotations.
OF_KERAS = {
    *dir(keras.Model),
    *dir(keras.layers.Dense),
    *dir(keras.layers.Embedding),
    *dir(keras.metrics.Metric),
    *dir(keras.optimizers.Optimizer),
    *dir(keras.callbacks.Callback),
}


def is_ours(cls):
    return cls.__module__.startswith("keras_bdl")


def callables(name, public):
    """Yields the functions behind a public name."""
    if not inspect.isclass(public):
        if inspect.isfunction(public):
            yield name, public
        return
    for owner in filter(is_ours, public.__mro__):
        for attribute, value in vars(owner).items():
            if attribute.startswith("_") and attribute != "__init__":
                continue
            if attribute in OF_KERAS and attribute != "__init__":
                continue
            if isinstance(value, property):
                value = value.fget
            value = inspect.unwrap(getattr(value, "__func__", value))
            # A `Protocol` gets its `__init__` from Python.
            if inspect.isfunction(value) and is_ours(value):
                yield f"{name}.{attribute}", value


def missing(function):
    signature = inspect.signature(function)
    bare = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is parameter.empty
        and parameter.name not in ("self", "cls")
        and parameter.kind
        not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    returns = signature.return_annotation is not signature.empty
    if function.__name__ != "__init__" and not returns:
        bare.append("return")
    return bare


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_public_signature_is_annotated(folder):
    module = FOLDERS[folder]
    bare = {
        name: missing(function)
        for public in module.__all__
        for name, function in callables(public, getattr(module, public))
        if missing(function)
    }
    assert not bare
