"""Dropout that stays on when a model is not in training.

In Keras, the argument `training` of a layer turns its dropout on or off, at the
time when a function is traced. Inside a block of `dropout_on` or
`dropout_in_model`, dropout layers are called with `training=True`. Other layers
receive the value from the model.
"""

import contextlib
import inspect
import numbers
from collections.abc import Iterable
from collections.abc import Iterator

import keras

from keras_bdl import _keras
from keras_bdl._replaced_in_thread import replaced
from keras_bdl._replaced_in_thread import replacements_of

# For these layers `training=True` turns on dropout and nothing else. A layer
# with a dropout layer inside, such as `MultiHeadAttention`, needs no entry.
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


def dropout_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that have dropout, also nested layers."""
    found = []
    for layer in _keras.all_layers(model):
        if not _drops(layer):
            continue
        if _can_switch(layer):
            found.append(layer)
        elif not any(_can_switch(inner) for inner in _inside(layer)):
            raise ValueError(
                "`model` must have layers whose dropout can be turned on. "
                "Write this layer with a `keras.layers.Dropout` inside. "
                f"Received: layer={layer.name!r} of type "
                f"{type(layer).__name__}"
            )
    return found


def seed_generators(
    layers: Iterable[keras.layers.Layer],
) -> list[keras.random.SeedGenerator]:
    """Returns the seed generators of layers. No generator appears twice."""
    found = {}
    for layer in layers:
        for owner in [layer, *_inside(layer)]:
            generator = getattr(owner, "seed_generator", None)
            if isinstance(generator, keras.random.SeedGenerator):
                found[id(generator)] = generator
    return list(found.values())


@contextlib.contextmanager
def dropout_on(model: keras.Model) -> Iterator[None]:
    """Turns dropout on for this thread, inside a block.

    Other threads may use the model in the meantime, without dropout.

    Args:
        model: A built Keras model.
    """
    with _switched_on(model, all_threads=False):
        yield


@contextlib.contextmanager
def dropout_in_model(model: keras.Model) -> Iterator[None]:
    """Turns dropout on for all threads, inside a block.

    Inside the block, `predict` and `evaluate` use other traced functions. The
    next block uses the same functions again, unless the model is compiled in
    the meantime.

    Args:
        model: A built Keras model.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_switched_on(model, all_threads=True))
        # `evaluate` needs a compiled model.
        names = ("predict", "test") if model.compiled else ("predict",)
        for name in names:
            stack.enter_context(_other_function(model, name))
        yield


def dropout_is_on(model: keras.Model) -> bool:
    """Returns whether the model is in a block that turns dropout on.

    A function that was traced inside such a block is valid only inside such a
    block. Other functions are valid only outside.

    Args:
        model: A built Keras model.

    Example:

    ```python
    dropout = keras_bdl.posteriors.MCDropout()
    network = keras_bdl.convert(model, to="mc_dropout", rate=0.1)
    with dropout.sampled(network, seed=0):
        keras_bdl.extend.dropout_is_on(network)  # True
    ```
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
    # Recurrent cells share no public class, only this method.
    known = isinstance(layer, SWITCHABLE) or hasattr(layer, "get_dropout_mask")
    return known and "training" in inspect.signature(layer.call).parameters


def _inside(layer):
    return _keras.inner_layers(layer)


@contextlib.contextmanager
def _other_function(model, name):
    """Gives the model another traced function inside a block."""
    attribute = f"{name}_function"
    make = getattr(model, f"make_{name}_function")
    make()  # makes the function that the end of the block restores
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
