"""The noise that a Keras loss implies as a negative log-likelihood.

Bayesian methods take `exp(-loss)` of an example as the density of its target,
up to a constant. Keras averages most losses over the D columns of a target, so
the noise depends on D.
"""

import functools
import math

import keras


def loss_function(loss):
    """Returns the function of a loss, and its arguments as a dictionary.

    The function is `None` for a loss without a function, such as a subclass of
    `keras.losses.Loss` with its own `call`. The dictionary is empty for a loss
    that is not part of Keras.

    Args:
        loss: The loss of one output, in any form that `compile` accepts.
    """
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):
        # Keras chooses the binary loss by the shape of the output.
        return keras.losses.categorical_crossentropy, {}
    loss = keras.losses.get(loss)
    if isinstance(loss, functools.partial):
        return loss.func, loss.keywords
    if isinstance(loss, keras.losses.Loss):
        function = getattr(loss, "fn", None)
        of_keras = getattr(function, "__module__", "").startswith("keras.")
        # Keras would put the source of another function into the config.
        return function, loss.get_config() if of_keras else {}
    return loss, {}


def ignored_class(loss):
    """Returns the class that a loss ignores, or `None`.

    Args:
        loss: The loss of one output, in any form that `compile` accepts.
    """
    if loss is None or isinstance(loss, str):
        return None
    return loss_function(loss)[1].get("ignore_class")


NO_LIKELIHOOD = (
    keras.losses.binary_focal_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
    keras.losses.categorical_hinge,
    keras.losses.circle,
    keras.losses.dice,
    keras.losses.hinge,
    keras.losses.mean_absolute_percentage_error,
    keras.losses.squared_hinge,
    keras.losses.tversky,
)


def implied_noise(loss, y_pred):
    """Returns a phrase about the noise that a loss implies, or `None`.

    The result is `None` for a cross-entropy, for the Poisson loss of counts and
    for an unknown loss.

    Args:
        loss: The loss of one output, in any form that `compile` accepts.
        y_pred: The output.
    """
    function, _ = loss_function(loss)
    if function in NO_LIKELIHOOD:
        return "is no negative log-likelihood of any noise"
    if function not in _NOISES:
        return None
    columns = y_pred.shape[-1] if len(y_pred.shape) > 1 else 1
    return f"implies {_NOISES[function](columns)}"


def _gaussian(columns):
    # (1/D) sum_d e_d^2 = sum_d e_d^2 / (2 s^2) at s^2 = D / 2.
    stddev = math.sqrt(columns / 2)
    return f"Gaussian noise with a standard deviation of {stddev:.3g}"


def _huber(columns):
    # (1/D) e^2 / 2 = e^2 / (2 s^2) at s^2 = D, near 0.
    stddev = math.sqrt(columns)
    return (
        f"noise that is Gaussian with a standard deviation of {stddev:.3g} "
        "near zero and has exponential tails"
    )


def _log_cosh(columns):
    return f"noise with a density proportional to cosh(error)^(-1/{columns})"


_NOISES = {
    keras.losses.mean_squared_error: _gaussian,
    keras.losses.mean_squared_logarithmic_error: lambda columns: (
        f"{_gaussian(columns)}, of log(1 + target)"
    ),
    keras.losses.mean_absolute_error: lambda columns: (
        f"Laplace noise with a scale of {columns}"
    ),
    keras.losses.huber: _huber,
    keras.losses.log_cosh: _log_cosh,
    keras.losses.cosine_similarity: lambda columns: (
        "von Mises-Fisher noise of directions with a concentration of 1"
    ),
}
