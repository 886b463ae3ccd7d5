"""Which weights of a model have a posterior, and which can have one."""

import warnings

from keras_bdl import _keras


def excluded_variables(model, names):
    """Returns the trainable variables that have neither prior nor noise.

    Args:
        model: A built Keras model.
        names: Names of layers, of classes of layers (which stand for all
            layers inside, too), or of variables, such as `"bias"`.

    Returns:
        A set of their `id`.
    """
    found, known = set(), {"BatchNormalization", "LearnedStddev"}
    for layer in _keras.all_layers(model):
        own = {layer.name, *(c.__name__ for c in type(layer).__mro__)}
        known |= own
        if own.intersection(names):
            found.update(id(v) for v in layer.trainable_variables)
    for variable in model.trainable_variables:
        known.add(variable.name)
        if variable.name in names:
            found.add(id(variable))
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(
            "`exclude_from_inference` must name layers, classes of layers or "
            f"variables of the model. Received: {unknown}, which are none of "
            f"model={model.name!r}"
        )
    return found


def check_weights(owner, uncertain, variables, prior="prior"):
    """Raises an error, or warns, where a posterior would not be one.

    Args:
        owner: Name of the class that fits it.
        uncertain: The variables that have a posterior.
        variables: All that are moved.
        prior: The argument that gives the prior. Defaults to `"prior"`.
    """
    check_any_weight(owner, variables)
    _refuse(
        owner,
        "have no constraint, which would cut the posterior",
        [v for v in uncertain if v.constraint is not None],
    )
    _refuse(
        owner,
        "be float32 or float64, since its steps are smaller than the spacing "
        "of shorter numbers; use a mixed policy for speed, such as "
        "`mixed_bfloat16`",
        [v for v in variables if v.dtype not in ("float32", "float64")],
    )
    regularized = [v.path for v in uncertain if v.regularizer is not None]
    if regularized:
        warnings.warn(
            f"`{owner}` gives every weight a prior, `{prior}`. A regularizer "
            "is a second one: it moves the mean, and is not in the curvature. "
            "Leave it out, or exclude the weight with "
            f"`exclude_from_inference`. Received: regularizers of "
            f"{regularized}",
            stacklevel=3,
        )


def check_any_weight(owner, weights):
    """Raises an error if there is no weight to fit.

    Args:
        owner: Name of the class that fits them.
        weights: The variables that it fits.
    """
    if not weights:
        raise ValueError(
            f"`{owner}` needs a trainable weight that is not excluded from "
            "inference. Set `trainable=True` on a layer before `compile`, or "
            "name fewer layers in `exclude_from_inference`. Received: a model "
            "without such a weight"
        )


def _refuse(owner, rule, variables):
    if variables:
        raise ValueError(
            f"Every variable that `{owner}` moves must {rule}. "
            f"Received: {[v.path for v in variables]}"
        )
