"""Which scores belong to which loss."""

import functools

import keras

from keras_bdl import likelihoods
from keras_bdl.laplace.binary_scores import BinaryScores
from keras_bdl.laplace.class_scores import ClassScores
from keras_bdl.laplace.gaussian_scores import GaussianScores
from keras_bdl.laplace.scores import Scores
from keras_bdl.prediction.likelihood import Likelihood

# They say what outputs mean, but their minimum is no maximum of likelihood.
_NO_LIKELIHOOD = (
    keras.losses.binary_focal_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
)


def scores_of_loss(loss) -> Scores:
    """Returns the `Scores` of a loss that is a negative log-likelihood.

    Args:
        loss: As `compile` takes it, for one output.
    """
    losses = keras.tree.flatten(loss)
    if len(losses) != 1:
        raise ValueError(
            "`Laplace.fit` takes models with one output, and one loss. "
            f"Received: loss={loss!r}"
        )
    (loss,) = losses
    if isinstance(loss, likelihoods.Gaussian):
        return GaussianScores(loss)
    likelihood = None
    if loss is not None and _function_of(loss) not in _NO_LIKELIHOOD:
        likelihood = Likelihood.of_loss(loss)
    if likelihood is None or likelihood.task == "regression":
        raise ValueError(
            "`loss` must be a negative log-likelihood, so that the posterior "
            "is known: a cross-entropy or `keras_bdl.likelihoods.Gaussian`. "
            "For a model trained with the mean squared error, pass "
            "`loss=keras_bdl.likelihoods.Gaussian(noise_stddev=...)` with the "
            f"standard deviation of the noise. Received: loss={loss!r}"
        )
    if _config_of(loss).get("ignore_class") is not None:
        raise ValueError(
            "`loss` must not ignore a class, which labels drawn from the "
            "model cannot have. Received: loss with "
            f"ignore_class={_config_of(loss)['ignore_class']}"
        )
    if likelihood.task == "binary":
        return BinaryScores(likelihood.from_logits)
    return ClassScores(likelihood.from_logits)


def _function_of(loss):
    if isinstance(loss, str) and loss.lower() not in ("crossentropy", "ce"):
        loss = keras.losses.get(loss)
    if isinstance(loss, functools.partial):
        return loss.func
    return getattr(loss, "fn", loss)


def _config_of(loss):
    if isinstance(loss, functools.partial):
        return loss.keywords
    if isinstance(loss, keras.losses.Loss):
        return loss.get_config()
    return {}
