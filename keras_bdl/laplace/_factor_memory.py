"""Check that the Kronecker factors of a model fit into memory."""

import keras

from keras_bdl._memory import check_memory
from keras_bdl.curvature._plan import Plan


def check_memory_of_factors(
    model: keras.Model, variables: list, *, fallback: bool | str
) -> None:
    """Raises an error if the Kronecker factors do not fit into memory.

    Args:
        model: A built Keras model.
        variables: Variables whose information is computed.
        fallback: Argument of `fit_laplace`.
    """
    plan = Plan(model, fallback=fallback, variables=variables)
    shapes = [
        matrix.shape
        for layer, rule in plan.rules
        for matrix in plan.matrices(layer, rule)
    ]
    entries = sum(ins**2 + outs**2 for ins, outs in shapes)
    check_memory(
        "The Kronecker factors of `model`",
        # The sums and the factors of one batch, then eigenvectors in float64.
        16 * entries,
        'Pass `subset="last_layer"` or `structure="diagonal"`.',
    )
