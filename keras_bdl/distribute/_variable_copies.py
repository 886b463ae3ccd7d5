"""The copies of a variable on all replicas: reading and restoring."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras


def variable_copies(variable):
    """Returns the TensorFlow variables of a Keras variable.

    Each replica has one variable. For a BatchNorm statistic or a metric, the
    values of these variables differ.

    Args:
        variable: A Keras variable.
    """
    return getattr(variable.value, "values", (variable.value,))


@contextlib.contextmanager
def restored(
    variables: Iterable[keras.Variable],
) -> Iterator[Callable[[], None]]:
    """Returns a context that restores variables at its end or after an error.

    Args:
        variables: Keras variables.

    Yields:
        A function that restores the values before the end of the context.

    Example:

    ```python
    with keras_bdl.extend.restored(model.trainable_variables):
        model.trainable_variables[0].assign_add([[1.0] * 4] * 4)
        changed = model.predict(x, verbose=0)
    ```
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
