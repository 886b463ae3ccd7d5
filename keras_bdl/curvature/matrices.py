"""Which weights of a model have Kronecker factors."""

from keras_bdl.curvature.plan import Plan


def matrices(model, fallback: bool = False):
    """Returns a `Matrix` for each of the `KroneckerFactors` of a step.

    Args:
        model: A built Keras model.
        fallback: As of `step`. Defaults to `False`.
    """
    plan = Plan(model, fallback)
    found = [plan.matrix(layer, rule) for layer, rule in plan.rules]
    return [matrix for matrix in found if matrix is not None]
