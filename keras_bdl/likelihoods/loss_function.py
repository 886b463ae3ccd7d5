"""The function behind a loss, however `compile` is given it."""

import functools

import keras


def loss_function(loss):
    """Returns the function of a loss, and its arguments as a dictionary.

    The function is `None` where a loss has none, such as a subclass of
    `keras.losses.Loss` with a `call` of its own. Arguments are those of the
    losses of Keras alone.

    Args:
        loss: As `compile` takes it for one output.
    """
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):
        # Keras decides by the shape of the output whether it is binary.
        return keras.losses.categorical_crossentropy, {}
    loss = keras.losses.get(loss)
    if isinstance(loss, functools.partial):
        return loss.func, loss.keywords
    if isinstance(loss, keras.losses.Loss):
        function = getattr(loss, "fn", None)
        of_keras = getattr(function, "__module__", "").startswith("keras.")
        # The config of another function would hold its source.
        return function, loss.get_config() if of_keras else {}
    return loss, {}
