"""Dropout that stays on when a model is not in training.

Keras decides on dropout by the `training` argument of each layer, when a
function is traced. Here `call` of the dropout layers, and of nothing else, is
replaced by one that always receives `training=True`.
"""

import contextlib
import functools
import inspect
import numbers

import keras

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
    for layer in model._flatten_layers():
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
    """Turns dropout on for the length of a block.

    `predict` and `evaluate` get functions of their own inside the block. They
    are kept for the next block with the ones used outside, so that a model
    that is compiled again forgets both.
    """
    layers = dropout_layers(model)
    before = [vars(layer).get("call") for layer in layers]
    with contextlib.ExitStack() as stack:
        for layer, call in zip(layers, before, strict=True):
            # Not `setattr`: Keras would track it as a part of the layer.
            vars(layer)["call"] = _in_training(layer.call)
            stack.callback(_put_back, layer, call)
        # What is not compiled cannot be evaluated.
        names = ("predict", "test") if model.compiled else ("predict",)
        for name in names:
            stack.enter_context(_other_function(model, name))
        yield


def dropout_is_on(model):
    """Whether the model is inside a `dropout_on` block.

    To be asked by whoever keeps functions of a model: one traced inside must
    not be used outside, nor the other way round.
    """
    return any(
        hasattr(vars(layer).get("call"), "keras_bdl_in_training")
        for layer in model._flatten_layers()
    )


def _drops(layer):
    rates = [getattr(layer, name, None) for name in RATES]
    return any(isinstance(r, numbers.Real) and r > 0 for r in rates)


def _can_switch(layer):
    # Cells share no public class, only these methods.
    known = isinstance(layer, SWITCHABLE) or hasattr(layer, "get_dropout_mask")
    return known and "training" in inspect.signature(layer.call).parameters


def _inside(layer):
    return layer._flatten_layers(include_self=False)


def _in_training(call):
    signature = inspect.signature(call)

    @functools.wraps(call)
    def call_in_training(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.arguments["training"] = True
        return call(*bound.args, **bound.kwargs)

    call_in_training.keras_bdl_in_training = True
    return call_in_training


def _put_back(layer, call):
    if call is None:
        del vars(layer)["call"]
    else:
        vars(layer)["call"] = call


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
