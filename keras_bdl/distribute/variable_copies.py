"""The copies of a variable on all replicas, and their restoring."""

import contextlib


def variable_copies(variable):
    """Returns the TensorFlow variables behind a Keras variable.

    One on each replica; those of a BatchNorm statistic or a metric differ.
    """
    return getattr(variable.value, "values", (variable.value,))


@contextlib.contextmanager
def restored(variables):
    """Puts back all values when the block ends, also when it raises.

    Args:
        variables: Keras variables.

    Yields:
        A function that puts them back at once.
    """
    # Under a distribution strategy the copies of a BatchNorm statistic differ.
    copies = [copy for v in variables for copy in variable_copies(v)]
    values = [copy.numpy() for copy in copies]

    def restore():
        for copy, value in zip(copies, values, strict=True):
            copy.assign(value)

    try:
        yield restore
    finally:
        restore()
