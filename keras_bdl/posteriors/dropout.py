"""Dropout that stays on when a model is not in training.

Keras decides on dropout by the `training` argument of each layer, when a
function is traced. Here `call` of the dropout layers, and of nothing else, is
replaced by one that receives `training=True` where dropout is on.
"""

import contextlib
import inspect
import numbers

import keras

from keras_bdl import _keras
from keras_bdl.thread_methods import replaced
from keras_bdl.thread_methods import replacements_of

# `call(training=True)` of these means dropout and nothing else. A layer with
# a dropout layer inside, such as `MultiHeadAttention`, needs no entry.
SWITCHABLE = (
    keras.layers.AlphaDropout,
    keras.layers.Attention,
    keras.layers.Dropout,
    keras.layers.GRU,
    keras.layers.GaussianDropout,
    keras.layers.LSTM,
)
RATES = (
    "rate",
    "dropout",
    "recurrent_dropout",
    "dropout_rate",
    "drop_rate",
    "drop_prob",
)


def dropout_layers(model):
    """Returns the layers of a model that drop something, nested ones too."""
    found = []
    for layer in _keras.all_layers(model):
        if not _drops(layer):
            continue
        if _can_switch(layer):
            found.append(layer)
        elif not any(_can_switch(inner) for inner in _inside(layer)):
            raise ValueError(
                "Dropout of every layer must be switched on, and this one "
                "cannot be. Write it with a `keras.layers.Dropout` inside. "
                f"Received: layer={layer.name!r} of type "
                f"{type(layer).__name__}"
            )
    return found


def seed_generators(layers):
    """Returns the seed generators of layers, each once."""
    found = {}
    for layer in layers:
        for owner in [layer, *_inside(layer)]:
            generator = getattr(owner, "seed_generator", None)
            if isinstance(generator, keras.random.SeedGenerator):
                found[id(generator)] = generator
    return list(found.values())


@contextlib.contextmanager
def dropout_on(model):
    """Turns dropout on for this thread, for the length of a block.

    Other threads may use the model in the meantime, without dropout.

    Args:
        model: A built Keras model.
    """
    with _switched_on(model, all_threads=False):
        yield


@contextlib.contextmanager
def dropout_in_model(model):
    """Turns dropout on for all threads, for the length of a block.

    `predict` and `evaluate` get functions of their own inside the block. They
    are kept for the next block with the ones used outside, so that a model
    that is compiled again forgets both.

    Args:
        model: A built Keras model.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_switched_on(model, all_threads=True))
        # What is not compiled cannot be evaluated.
        names = ("predict", "test") if model.compiled else ("predict",)
        for name in names:
            stack.enter_context(_other_function(model, name))
        yield


def dropout_is_on(model):
    """Whether the model is inside a block that turns dropout on.

    A function that was traced inside of such a block must not be used outside,
    nor the other way round.

    Args:
        model: A built Keras model.
    """
    return any(
        _with_dropout in replacements_of(layer, "call")
        for layer in _keras.all_layers(model)
    )


def _with_dropout(call, *args, **kwargs):
    bound = inspect.signature(call).bind(*args, **kwargs)
    bound.arguments["training"] = True
    return call(*bound.args, **bound.kwargs)


@contextlib.contextmanager
def _switched_on(model, all_threads):
    with contextlib.ExitStack() as stack:
        for layer in dropout_layers(model):
            stack.enter_context(
                replaced(layer, "call", _with_dropout, all_threads)
            )
        yield


def _drops(layer):
    rates = [getattr(layer, name, None) for name in RATES]
    return any(isinstance(r, numbers.Real) and r > 0 for r in rates)


def _can_switch(layer):
    # Cells share no public class, only these methods.
    known = isinstance(layer, SWITCHABLE) or hasattr(layer, "get_dropout_mask")
    return known and "training" in inspect.signature(layer.call).parameters


def _inside(layer):
    return _keras.inner_layers(layer)


@contextlib.contextmanager
def _other_function(model, name):
    """Gives the model another traced function for the length of a block."""
    attribute = f"{name}_function"
    make = getattr(model, f"make_{name}_function")
    make()  # there is one to come back to, and nothing is traced yet
    outside = getattr(model, attribute)
    inside = getattr(outside, "keras_bdl_dropout_on", None)
    if inside is None:
        make(force=True)
        inside = outside.keras_bdl_dropout_on = getattr(model, attribute)
    setattr(model, attribute, inside)
    try:
        yield
    finally:
        setattr(model, attribute, outside)
