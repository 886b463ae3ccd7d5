"""Keeping what was traced for a model as long as the trace is right."""

import threading
import weakref


class ModelCache:
    """The last few functions made for each model.

    They are kept with the function that the model itself predicts with, and
    never touch it. So they live as long: a model that is compiled again, or
    whose dropout is turned on, has another one and gets others here. So does
    one that has gained, lost or changed a layer.

    What is kept must not hold the model, or it would never be freed: hold a
    `weakref.ref` of it.

    Args:
        size: How many to keep for one model. Defaults to `8`.
    """

    def __init__(self, size: int = 8):
        self.size = size
        self._entries = weakref.WeakKeyDictionary()
        self._changing = threading.Lock()

    def get(self, model, key, make):
        """Returns the entry of a model and key, made by `make()` if new."""
        key = (key, references(model._flatten_layers()))
        with self._changing:
            model.make_predict_function()  # unless it has one
            entries = self._entries.setdefault(model.predict_function, [])
            for known, entry in entries:
                if known == key:
                    return entry
            entries.append((key, make()))
            del entries[: -self.size]
            return entries[-1][1]


def references(layers):
    """Returns what equals that of the same layers and of no others, ever.

    The `id` of a layer that is gone may be given to a new one.
    """
    return [weakref.ref(layer) for layer in layers]
