"""The models that hold a posterior sample instead of their own weights."""

import contextlib
import weakref
from collections.abc import Iterator

import keras

# The models inside a block of `Posterior.sampled`.
_holding_draws: weakref.WeakSet = weakref.WeakSet()


def holds_draw(model: keras.Model) -> bool:
    """Returns whether a model is inside a block of `Posterior.sampled`.

    Args:
        model: Any Keras model.
    """
    return model in _holding_draws


@contextlib.contextmanager
def holding_draw(model: keras.Model) -> Iterator[None]:
    """Makes `holds_draw` return `True` in a block. Blocks may be nested.

    Args:
        model: Any Keras model.
    """
    outermost = model not in _holding_draws
    _holding_draws.add(model)
    try:
        yield
    finally:
        if outermost:
            _holding_draws.discard(model)
