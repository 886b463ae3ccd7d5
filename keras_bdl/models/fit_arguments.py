"""Checks of the arguments of `compile` and `fit`."""

import keras

from keras_bdl.models.strategy_check import check_seeds
from keras_bdl.posteriors.posterior_owner import posterior_owner
from keras_bdl.protocols import DrawsFunctions
from keras_bdl.protocols import OwnsTrainStep

_DEFAULTS = {
    "objective": None,
    "train_samples": 1,
    "samples": 0,
    "sample_replicas": 1,
    "auto_scale_loss": True,
}


def compile_config(**arguments):
    """Returns the arguments that are not the default ones, for a file.

    Defaults are left out of files: Keras clones a functional subclass into a
    model of its own class, whose `compile` knows none of these.

    Args:
        **arguments: All arguments, by name.
    """
    return {
        # One by one: an object is saved with its name.
        name: keras.saving.serialize_keras_object(value)
        for name, value in arguments.items()
        if value != _DEFAULTS[name]
    }


def check_compile_arguments(objective, train_samples, samples):
    """Raises an error that names the argument that is wrong.

    Args:
        objective: See `keras_bdl.models.BayesianTrainer.compile`.
        train_samples: As above.
        samples: As above.
    """
    _check_draws("train_samples", train_samples, at_least=1)
    _check_draws("samples", samples, at_least=0)
    # A class has the methods, too.
    if isinstance(objective, type) or not (
        objective is None
        or isinstance(objective, (OwnsTrainStep, DrawsFunctions))
    ):
        raise ValueError(
            "`objective` must be one of `keras_bdl.objectives`, or have a "
            "method of `keras_bdl.protocols.OwnsTrainStep`. "
            f"Received: objective={objective!r}"
        )


def _check_draws(name, value, at_least):
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(
            f"`{name}` must be an integer. Received: {name}={value!r}"
        )
    if value < at_least:
        raise ValueError(
            f"`{name}` must be at least {at_least}. Received: {name}={value}"
        )


def check_fit(model, fit_arguments):
    """Raises an error where `fit` would do another thing than it seems.

    Args:
        model: A model that is about to be trained.
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
                "restores the weights alone, and the deviations that "
                f"`{type(owner).__name__}` learned would stay those of the "
                "last epoch. Use `keras_bdl.callbacks.EarlyStopping`, which "
                "restores both. "
                f"Received: callbacks=[..., {type(callback).__name__}(...)]"
            )
