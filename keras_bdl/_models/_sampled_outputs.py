"""The outputs of a model for posterior samples, and their average."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._keras import inner_optimizer
from keras_bdl._protocols import DrawsFunctions
from keras_bdl.layers._variational import variational_layers
from keras_bdl.prediction._outputs import Likelihood
from keras_bdl.prediction._outputs import per_output


def likelihoods_of(model: keras.Model, outputs: Any) -> list[Likelihood | None]:
    """Returns the `Likelihood` of each flat output, `None` if unknown."""
    names = getattr(model, "output_names", None)
    losses = per_output("loss", model.loss, outputs, names=names)
    return [
        None if loss is None else Likelihood.of_loss(loss) for loss in losses
    ]


def average_draws(
    draws: Sequence[Any], likelihoods: Sequence[Likelihood | None]
) -> Any:
    """Returns the average of samples, in the structure of one sample.

    For a classifier, the function averages probabilities, and returns logits if
    the model returns logits. For other models, it averages the outputs. An
    average has the mask of the first sample, so that padding does not count.
    """
    flat = [keras.tree.flatten(draw) for draw in draws]
    averages = [
        _average(ops.stack(output), likelihood)
        for output, likelihood in zip(
            zip(*flat, strict=True), likelihoods, strict=True
        )
    ]
    for average, first in zip(averages, flat[0], strict=True):
        mask = _keras.mask_of(first)
        if mask is not None:
            _keras.set_mask(average, mask)
    return keras.tree.pack_sequence_as(draws[0], averages)


def _average(outputs: Any, likelihood: Likelihood | None) -> Any:
    if likelihood is None or not likelihood.from_logits:
        return ops.mean(outputs, axis=0)
    if likelihood.task == "binary":
        return _log_mean(ops.log_sigmoid(outputs)) - _log_mean(
            ops.log_sigmoid(-outputs)
        )
    return _log_mean(ops.log_softmax(outputs, axis=-1))


def _log_mean(log_values: Any) -> Any:
    return ops.logsumexp(log_values, axis=0) - math.log(log_values.shape[0])


class _LayerwiseDraws:
    """Evaluates and predicts with samples of all variational layers.

    The class follows the protocol `DrawsFunctions`. A sample is one function,
    the same for every batch and replica, with any `estimator` in training.
    Outside of the graph, `keras_bdl.predict` with
    `keras_bdl.posteriors.Layerwise` does the same.
    """

    def __init__(self, layers: Sequence[Any]):
        self._drawn_layers = layers

    def call_with_draw(self, model: keras.Model, x: Any, draw: int) -> Any:
        """Returns `model(x, training=False)` for one sample."""
        with contextlib.ExitStack() as stack:
            for layer in self._drawn_layers:
                stack.enter_context(layer.holding(draw))
            return _keras.call_with_training(model, x, training=False)


def call_with_draws(model: Any, methods: Sequence[Any], x: Any) -> list[Any]:
    """Returns the outputs for each of `model.samples` posterior samples."""
    layers = [one for one in variational_layers(model) if one.built]
    if layers:
        methods = [*methods, _LayerwiseDraws(layers)]
    for method in methods:
        if isinstance(method, DrawsFunctions):
            return [
                method.call_with_draw(model, x, draw)
                for draw in range(model.samples)
            ]
    raise ValueError(
        "`samples` needs a model with a posterior, and neither the optimizer "
        "nor the objective nor the layers of this model draw weights. Compile "
        "with `samples=0`, or call `keras_bdl.predict(model, x, posterior)`. "
        f"Received: samples={model.samples}, "
        f"optimizer={type(inner_optimizer(model)).__name__}"
    )
