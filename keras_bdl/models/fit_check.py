"""Checks the arguments of `fit`."""

import keras

from keras_bdl.models.strategy_check import check_seeds
from keras_bdl.posteriors.posterior_owner import posterior_owner


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
