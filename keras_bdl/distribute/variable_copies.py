"""The copies of a variable on the replicas, and how to restore them."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras


def variable_copies(variable):
    """Returns the TensorFlow variables of a Keras variable.

    There is one on each replica. Those of a BatchNorm statistic or a metric
    differ.

    Args:
        variable: A Keras variable.
    """
    return getattr(variable.value, "values", (variable.value,))


@contextlib.contextmanager
def restored(
    variables: Iterable[keras.Variable],
) -> Iterator[Callable[[], None]]:
    """Returns a context that restores all values, also after an error.

    Args:
        variables: Keras variables.

    Yields:
        A function that restores the values at once.
    """
    # On several replicas, the copies of a BatchNorm statistic differ.
    copies = [copy for v in variables for copy in variable_copies(v)]
    values = [copy.numpy() for copy in copies]

    def restore():
        for copy, value in zip(copies, values, strict=True):
            copy.assign(value)

    try:
        yield restore
    finally:
        restore()


def assign(assignments: Iterable[tuple[Any, Any]]) -> None:
    """Assigns values to variables.

    Args:
        assignments: Pairs of a variable and a value.
    """
    for variable, value in assignments:
        variable.assign(value)
