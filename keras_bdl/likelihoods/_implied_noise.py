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


# Negative log-likelihoods of one observation, up to a constant.
_LIKELIHOODS = (
    keras.losses.binary_crossentropy,
    keras.losses.categorical_crossentropy,
    keras.losses.ctc,
    keras.losses.kl_divergence,
    keras.losses.poisson,
    keras.losses.sparse_categorical_crossentropy,
)
# Those that Keras averages over the labels or counts of an example, although
# the likelihood of the example is the product.
_AVERAGED = (keras.losses.binary_crossentropy, keras.losses.poisson)


def averages_labels(loss):
    """Returns whether Keras averages a loss over the labels of an example.

    Args:
        loss: The loss of one output, in any form that `compile` accepts.
    """
    return loss is not None and loss_function(loss)[0] in _AVERAGED


def labels_of_value(loss, y_pred):
    """Returns how many labels one value of a loss averages.

    A binary cross-entropy of D labels is `1/D sum_d -log p(y_d)`, and the
    result is D. The result is 1 for a loss that is a sum over its labels, and
    for a loss whose average `implied_noise` describes.

    Args:
        loss: The loss of one output, in any form that `compile` accepts.
        y_pred: The output.
    """
    function, arguments = loss_function(loss)
    if function not in _AVERAGED or len(y_pred.shape) < 2:
        return 1
    labels = y_pred.shape[arguments.get("axis", -1)]
    if labels is None:
        raise ValueError(
            "The number of labels of an example must be fixed, because the "
            "likelihood is the product over the labels. Give the output a "
            "known size on its last axis. "
            f"Received: an output of shape {tuple(y_pred.shape)}"
        )
    return labels


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


NOT_KNOWN = (
    "is not known to be one. If the loss is a negative log-likelihood, set its "
    "attribute `is_likelihood = True`. If it is not, no posterior belongs to it"
)


def says_likelihood(loss):
    """Returns whether a loss says that it is a negative log-likelihood.

    Args:
        loss: The loss of one output, as an object or a function.
    """
    return any(
        hasattr(one, "moments") or getattr(one, "is_likelihood", False)
        for one in (loss, getattr(loss, "fn", None))
    )


def implied_noise(loss, y_pred):
    """Returns a phrase about the noise that a loss implies, or `None`.

    The result is `None` for a cross-entropy, for the Poisson loss of counts,
    for a loss with a method `moments`, such as
    `keras_bdl.likelihoods.Gaussian`, and for a loss whose attribute
    `is_likelihood` is true.

    Args:
        loss: The loss of one output, in any form that `compile` accepts.
        y_pred: The output.
    """
    function, _ = loss_function(loss)
    if function in NO_LIKELIHOOD:
        return "is no negative log-likelihood of any noise"
    if function not in _NOISES:
        known = function in _LIKELIHOODS or says_likelihood(loss)
        return None if known else NOT_KNOWN
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
