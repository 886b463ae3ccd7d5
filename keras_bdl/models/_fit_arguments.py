"""Checks of the arguments of `compile` and `fit`."""

import keras

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number
from keras_bdl._data._dataset_size import OBSERVATIONS
from keras_bdl._inner_optimizer import inner_optimizer
from keras_bdl._protocols import DrawsFunctions
from keras_bdl._protocols import OwnsTrainStep
from keras_bdl._protocols import TargetsPosterior
from keras_bdl.models._strategy_check import check_seeds
from keras_bdl.posteriors._held_posterior import posterior_owner

_DEFAULTS = {
    "objective": None,
    "train_samples": 1,
    "samples": 0,
    "sample_replicas": 1,
    "observations": None,
    "auto_scale_loss": True,
}


def compile_config(**arguments):
    """Returns the arguments that differ from their defaults.

    Keras may clone a model into a model of a Keras class. The `compile` of that
    class accepts none of these arguments. So a config omits the defaults.

    Args:
        **arguments: All arguments, by name.
    """
    return {
        # Serialized one by one: Keras saves an object together with its name.
        name: keras.saving.serialize_keras_object(value)
        for name, value in arguments.items()
        if value != _DEFAULTS[name]
    }


def check_compile_arguments(objective, *, train_samples, samples, observations):
    """Raises an error that names a wrong argument of `compile`.

    Args:
        objective: An object of `keras_bdl.objectives`, or `None`.
        train_samples: Number of posterior samples in a training step.
        samples: Number of posterior samples in an evaluation.
        observations: What N counts.
    """
    check_number("train_samples", train_samples, at_least=1, integer=True)
    check_number("samples", samples, at_least=0, integer=True)
    check_choice("observations", observations, (None, *OBSERVATIONS))
    # A class such as `MAP`, without `()`, has the methods, too.
    if isinstance(objective, type) or not (
        objective is None
        or isinstance(objective, (OwnsTrainStep, DrawsFunctions))
    ):
        raise ValueError(
            "`objective` must be an object of `keras_bdl.objectives`, or have "
            "the method of `keras_bdl._protocols.OwnsTrainStep`. "
            f"Received: objective={objective!r}"
        )


def check_fit(model, fit_arguments):
    """Raises an error for arguments of `fit` that do not do what users expect.

    Args:
        model: The model, just before its training.
        fit_arguments: All arguments of `fit`, by name.
    """
    check_seeds(model, fit_arguments)
    owner = posterior_owner(model)
    if owner is not None:
        _check_early_stopping(owner, fit_arguments["callbacks"])


def _check_early_stopping(owner, callbacks):
    callbacks = getattr(callbacks, "callbacks", callbacks)  # `CallbackList`
    for callback in keras.tree.flatten(callbacks):
        if (
            isinstance(callback, keras.callbacks.EarlyStopping)
            and callback.restore_best_weights
            and not getattr(callback, "restores_posterior", False)
        ):
            raise ValueError(
                "`keras.callbacks.EarlyStopping(restore_best_weights=True)` "
                "restores the weights alone. The standard deviations of "
                f"`{type(owner).__name__}` would keep their values of the "
                "last epoch. Use `keras_bdl.callbacks.EarlyStopping`, which "
                "restores both. "
                f"Received: callbacks=[..., {type(callback).__name__}(...)]"
            )


def check_optimizer(owner: str, model: keras.Model) -> None:
    """Raises an error if the optimizer would change the objective.

    Args:
        owner: Name of the objective.
        model: A compiled model.
    """
    optimizer = inner_optimizer(model)
    name = type(optimizer).__name__
    if isinstance(optimizer, TargetsPosterior):
        raise ValueError(
            f"`{owner}` needs an optimizer that only minimises, such as "
            f'"adam", but `{name}` finds a posterior itself. Leave out one of '
            f"the two. Received: optimizer={name}"
        )
    changing = [
        option
        for option in ("weight_decay", "use_ema")
        if getattr(optimizer, option, None)
    ]
    if changing:
        raise ValueError(
            f"`{owner}` has a `prior`, and its variances belong to the weights "
            f"of the optimizer. Leave {changing} out of the optimizer. "
            f"Received: optimizer={name} with {changing}"
        )
