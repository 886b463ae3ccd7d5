"""The copies of a variable under a distribution strategy."""


def variable_copies(variable):
    """Returns the TensorFlow variables behind a Keras variable.

    One on each replica; those of a BatchNorm statistic or a metric differ.
    """
    return getattr(variable.value, "values", (variable.value,))
