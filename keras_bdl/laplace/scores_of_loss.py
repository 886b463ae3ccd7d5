"""Which scores belong to which loss."""

import keras

from keras_bdl import likelihoods
from keras_bdl.laplace.binary_scores import BinaryScores
from keras_bdl.laplace.class_scores import ClassScores
from keras_bdl.laplace.gaussian_scores import GaussianScores
from keras_bdl.laplace.scores import Scores
from keras_bdl.likelihoods.implied_noise import NO_LIKELIHOOD
from keras_bdl.likelihoods.loss_function import loss_function
from keras_bdl.prediction.likelihood import Likelihood


def scores_of_loss(loss) -> Scores:
    """Returns the `Scores` of a loss that is a negative log-likelihood.

    Args:
        loss: As `compile` takes it, for one output.
    """
    losses = keras.tree.flatten(loss)
    if len(losses) != 1:
        raise ValueError(
            "`fit_laplace` takes models with one output, and one loss. "
            f"Received: loss={loss!r}"
        )
    (loss,) = losses
    if isinstance(loss, likelihoods.Gaussian):
        return GaussianScores(loss)
    likelihood = None
    function, arguments = loss_function(loss)
    if function not in NO_LIKELIHOOD:
        likelihood = Likelihood.of_loss(loss)
    if likelihood is None or likelihood.task == "regression":
        raise ValueError(
            "`loss` must be a negative log-likelihood, so that the posterior "
            "is known: a cross-entropy or `keras_bdl.likelihoods.Gaussian`. "
            "For a model trained with the mean squared error, pass "
            "`loss=keras_bdl.likelihoods.Gaussian(noise_stddev=...)` with the "
            f"standard deviation of the noise. Received: loss={loss!r}"
        )
    if arguments.get("ignore_class") is not None:
        raise ValueError(
            "`loss` must not ignore a class, which labels drawn from the "
            "model cannot have. Received: loss with "
            f"ignore_class={arguments['ignore_class']}"
        )
    if likelihood.task == "binary":
        return BinaryScores(likelihood.from_logits)
    return ClassScores(likelihood.from_logits)
