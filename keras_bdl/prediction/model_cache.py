"""Keeping what was traced for a model as long as the trace is right."""

import weakref


class ModelCache:
    """The last few functions made for each model.

    They are kept with the function that the model itself predicts with, and
    never touch it. So they live as long: a model that is compiled again, or
    whose dropout is turned on, has another one and gets others here.

    What is kept must not hold the model, or it would never be freed: hold a
    `weakref.ref` of it.

    Args:
        size: How many to keep for one model. Defaults to `8`.
    """

    def __init__(self, size: int = 8):
        self.size = size
        self._entries = weakref.WeakKeyDictionary()

    def get(self, model, key, make):
        """Returns the entry of a model and key, made by `make()` if new."""
        model.make_predict_function()  # unless it has one
        entries = self._entries.setdefault(model.predict_function, [])
        for known, entry in entries:
            if known == key:
                return entry
        entries.append((key, make()))
        del entries[: -self.size]
        return entries[-1][1]
