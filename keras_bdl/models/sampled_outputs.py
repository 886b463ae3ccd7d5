"""The outputs of a model under posterior draws, and their average."""

import contextlib
import math

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl.layers import Variational
from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.outputs import per_output
from keras_bdl.protocols import DrawsFunctions


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


class LayerwiseDraws:
    """Evaluates and predicts with draws of all variational layers.

    A `DrawsFunctions`. A draw is one function: the same for every batch and
    replica, whatever the `estimator` of training. `keras_bdl.predict` with
    `keras_bdl.posteriors.Layerwise` does the same from outside of the graph.

    Args:
        layers: The layers.
    """

    def __init__(self, layers):
        self._drawn_layers = layers

    @classmethod
    def of(cls, model):
        """Returns the draws of a model, or `None` if no layer has any."""
        layers = [
            layer
            for layer in _keras.all_layers(model)
            if isinstance(layer, Variational) and layer.built
        ]
        return cls(layers) if layers else None

    def call_with_draw(self, model, x, draw):
        """Returns `model(x, training=False)` under one draw."""
        with contextlib.ExitStack() as stack:
            for layer in self._drawn_layers:
                stack.enter_context(layer.holding(draw))
            return model._call_for(x, training=False)


def call_with_draws(model, methods, x):
    """Returns the outputs under `model.samples` draws, a list.

    Args:
        model: A `keras_bdl.Model`.
        methods: Its objective and its optimizer, those that it has.
        x: A batch of inputs.
    """
    for method in [*methods, LayerwiseDraws.of(model)]:
        if isinstance(method, DrawsFunctions):
            return [
                method.call_with_draw(model, x, draw)
                for draw in range(model.samples)
            ]
    raise ValueError(
        "`samples` asks for posterior draws in evaluation, and this model has "
        "no posterior of its own: neither its optimizer nor its objective nor "
        "its layers draw weights. Compile with `samples=0`, or call "
        "`keras_bdl.predict(model, x, posterior=...)`. "
        f"Received: samples={model.samples}, "
        f"optimizer={type(inner_optimizer(model)).__name__}"
    )
