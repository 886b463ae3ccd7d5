"""Selection and checks of the weights that get a posterior."""

import warnings
from collections.abc import Iterable
from collections.abc import Sequence

import keras

from keras_bdl import _keras
from keras_bdl._arguments import did_you_mean
from keras_bdl.posteriors._frozen_weights import made_trainable


def excluded_variables(model: keras.Model, names: Iterable[str]) -> set[int]:
    """Returns the ids of the variables without prior and noise.

    Layers may be frozen: then the result also has their variables.

    Args:
        model: A built Keras model.
        names: Names of layers, of classes of layers (including all layers
            inside) or of variables, such as `"bias"`.

    Returns:
        A set with the `id` of each variable.
    """
    found: set[int] = set()
    known = {"BatchNormalization", "LearnedStddev"}
    for layer in _keras.all_layers(model):
        own = {layer.name, *(c.__name__ for c in type(layer).__mro__)}
        known |= own
        if own.intersection(names):
            found.update(id(v) for v in made_trainable(layer))
    # Also variables that were frozen after training.
    for variable in made_trainable(model):
        known.add(variable.name)
        if variable.name in names:
            found.add(id(variable))
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(
            "`exclude_from_inference` must name layers, classes of layers or "
            f"variables of the model. {did_you_mean(unknown[0], known)}"
            f"Received: {unknown}, unknown in "
            f"model={model.name!r}"
        )
    return found


def check_weights(
    owner: str,
    uncertain: Sequence,
    variables: Sequence,
    *,
    prior: str = "prior",
) -> None:
    """Raises an error or warns if weights cannot have a valid posterior.

    Args:
        owner: Name of the class that fits the posterior.
        uncertain: The variables that have a posterior.
        variables: All variables that the owner updates.
        prior: Name of the argument for the prior. Defaults to `"prior"`.
    """
    check_any_weight(owner, variables)
    _refuse(
        owner,
        "have no constraint, which would truncate the posterior",
        [v for v in uncertain if v.constraint is not None],
    )
    _refuse(
        owner,
        "be float32 or float64, because half precision rounds its small steps "
        "to zero; use a mixed policy such as `mixed_bfloat16` for speed",
        [v for v in variables if v.dtype not in ("float32", "float64")],
    )
    regularized = [v.path for v in uncertain if v.regularizer is not None]
    if regularized:
        warnings.warn(
            f"`{owner}` gives every weight a prior, `{prior}`. A regularizer "
            "is a second prior, which moves the mean but not the curvature. "
            "Remove the regularizer, or exclude the weight with "
            f"`exclude_from_inference`. Received: regularizers of "
            f"{regularized}",
            stacklevel=3,
        )


def check_any_weight(owner: str, weights: Sequence) -> None:
    """Raises an error if the list of weights to fit is empty.

    Args:
        owner: Name of the class that fits the weights.
        weights: The variables that the class fits.
    """
    if not weights:
        raise ValueError(
            f"`{owner}` needs a trainable weight outside of "
            "`exclude_from_inference`. Set `trainable=True` on a layer before "
            "`compile`, or exclude fewer layers. Received: a model without "
            "such a weight"
        )


def _refuse(owner, rule, variables):
    if variables:
        raise ValueError(
            f"Every variable that `{owner}` updates must {rule}. "
            f"Received: {[v.path for v in variables]}"
        )
