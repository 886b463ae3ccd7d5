"""Replaces a function of an object in one thread alone.

Replicas are threads, and users predict in several threads. If one thread
replaces a function, the other threads must still call the original.
"""

import contextlib
import functools
import threading
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

# Called as `replacement(original, *args, **kwargs)`.
Replacement = Callable[..., Any]

_LOCK = threading.RLock()
_PLACES: dict[tuple[int, str], "_Place"] = {}


@contextlib.contextmanager
def replaced(
    owner: Any, name: str, replacement: Replacement, all_threads: bool = False
) -> Iterator[None]:
    """Replaces a function of an object inside a block.

    Other threads call the original in the meantime, unless `all_threads` is
    true. Blocks may overlap, in one thread and in several. The replacement of
    an inner block receives the replacement of the outer block as its original
    function. The end of the last block, in any thread, restores the object.
    """
    key = id(owner), name
    with _LOCK:
        place = _PLACES.get(key) or _Place(owner, name)
        _PLACES[key] = place
        active = place.everywhere if all_threads else place.here.replacements
        active.append(replacement)
        place.blocks += 1
    try:
        yield
    finally:
        with _LOCK:
            _remove_last(active, replacement)
            place.blocks -= 1
            if not place.blocks:
                place.restore()
                del _PLACES[key]


def replacements_of(owner: Any, name: str) -> list[Replacement]:
    """Returns the replacements of a function that are active in this thread."""
    with _LOCK:
        place = _PLACES.get((id(owner), name))
        return [] if place is None else place.replacements()


class _Here(threading.local):
    def __init__(self) -> None:
        self.replacements: list[Replacement] = []


class _Place:
    """Replaced function of one object, with all replacements."""

    def __init__(self, owner: Any, name: str):
        self._owner = owner  # keeps the object, so that its `id` stays taken
        self._name = name
        self._attributes = vars(owner)
        self._is_own = name in self._attributes
        self._original = original = getattr(owner, name)
        self.blocks = 0  # open blocks of `replaced`, in all threads
        self.everywhere: list[Replacement] = []
        self.here = _Here()  # those of this thread alone

        def call_replacements(*args: Any, **kwargs: Any) -> Any:
            function = original
            for replacement in self.replacements():
                function = _with_original(replacement, function)
            return function(*args, **kwargs)

        # Not `setattr`: Keras would track the function as a part of a layer.
        self._attributes[name] = _looks_like(original, call_replacements)

    def replacements(self) -> list[Replacement]:
        return [*self.everywhere, *self.here.replacements]

    def restore(self) -> None:
        if self._is_own:
            self._attributes[self._name] = self._original
        else:
            del self._attributes[self._name]


def _with_original(replacement: Replacement, original: Callable) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return _looks_like(original, call)


def _looks_like(original: Callable, function: Callable) -> Callable:
    # Copies the signature, which Keras and replacements read, but not other
    # attributes: the original may be a layer, such as an activation.
    return functools.update_wrapper(function, original, updated=())


def _remove_last(
    replacements: list[Replacement], replacement: Replacement
) -> None:
    for index in reversed(range(len(replacements))):
        if replacements[index] is replacement:
            del replacements[index]
            return
