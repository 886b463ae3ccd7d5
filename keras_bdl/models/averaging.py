"""Averages the outputs of several Monte-Carlo draws."""

import math

import keras
from keras import ops

from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.per_output import per_output


def likelihoods_of(model, outputs):
    """Returns the `Likelihood` of each flattened output, `None` if unknown."""
    names = getattr(model, "output_names", None)
    losses = per_output("loss", model.loss, outputs, names)
    return [
        None if loss is None else Likelihood.of_loss(loss) for loss in losses
    ]


def average_draws(draws, likelihoods):
    """Averages over draws; what comes out reads as one output of the model.

    Classifiers: the probabilities are averaged, and given as logits again
    where the model gives logits. Anything else: the outputs are averaged.

    Args:
        draws: The nested outputs of each draw.
        likelihoods: What `likelihoods_of` returned.
    """
    flat = [keras.tree.flatten(draw) for draw in draws]
    averages = [
        _average(ops.stack(output), likelihood)
        for output, likelihood in zip(
            zip(*flat, strict=True), likelihoods, strict=True
        )
    ]
    return keras.tree.pack_sequence_as(draws[0], averages)


def _average(outputs, likelihood):
    if likelihood is None or not likelihood.from_logits:
        return ops.mean(outputs, axis=0)
    if likelihood.task == "binary":
        return _log_mean(ops.log_sigmoid(outputs)) - _log_mean(
            ops.log_sigmoid(-outputs)
        )
    return _log_mean(ops.log_softmax(outputs, axis=-1))


def _log_mean(log_values):
    return ops.logsumexp(log_values, axis=0) - math.log(log_values.shape[0])
