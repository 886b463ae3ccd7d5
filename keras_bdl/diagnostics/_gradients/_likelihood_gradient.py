"""Gradient of the likelihood at one posterior sample, as a compiled step."""

import weakref

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._aliases import Loss
from keras_bdl.diagnostics._training_loss import check_loss
from keras_bdl.diagnostics._training_loss import compiled_loss
from keras_bdl.diagnostics._training_loss import loss_reference
from keras_bdl.diagnostics._training_loss import mean_loss
from keras_bdl.layers._find_variational_layers import variational_layers
from keras_bdl.prediction._stateless_call import ModelCache
from keras_bdl.prediction._stateless_call import traced

_CACHE = ModelCache()


class LikelihoodGradient:
    """Adds the gradient at one posterior sample to the running means.

    `likelihood_gradient_of` makes one object for each model and loss.

    Args:
        model: A built Keras model with variational layers.
        loss: A loss as `compile` takes it, or `None` for the loss that the
            model is compiled with.

    Attributes:
        names: A triple of layer, variable and kind, `"means"` or `"rhos"`,
            for each gradient.
    """

    def __init__(self, model: keras.Model, loss: Loss | None):
        self.names = _names(model)
        self._model = weakref.ref(model)
        self._loss = None if loss is None else compiled_loss(loss)
        self._function = traced(model, self._step)

    def __call__(self, x, y, count, means):
        """Adds the gradient of one sample.

        Args:
            x: Inputs.
            y: Targets.
            count: Number of this sample, from 1 on, a float32 tensor.
            means: Means of the gradients of the earlier samples.

        Returns:
            The means over all samples so far, and a vector of the squared
            deviations of this sample, (2) of `gradient_variance` times the
            size.
        """
        return self._function(x, y, count, means)

    def zeros(self) -> list:
        """Returns zeros, the means before the first sample."""
        return [tf.zeros(v.shape) for v in _parameters(self._model())]

    def _step(self, x, y, count, means):
        model = self._model()
        variables = [v.value for v in _parameters(model)]
        with tf.GradientTape() as tape:
            outputs = _keras.call_with_training(model, x, training=True)
            nll = mean_loss(
                self._loss or _keras.compile_loss(model), y, outputs
            )
        gradients = tape.gradient(
            nll, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        deviations = [
            tf.convert_to_tensor(g) - m
            for g, m in zip(gradients, means, strict=True)
        ]
        squares = tf.stack([tf.reduce_sum(tf.square(d)) for d in deviations])
        means = [
            m + d / count for m, d in zip(means, deviations, strict=True)
        ]  # (1)
        return means, squares * (count - 1) / count  # (2)


def likelihood_gradient_of(
    model: keras.Model, loss: Loss | None
) -> LikelihoodGradient:
    """Returns the `LikelihoodGradient` of a model and loss, from a cache.

    Args:
        model: A Keras model.
        loss: A loss as `compile` takes it, or `None` for the loss that the
            model is compiled with.
    """
    if not variational_layers(model):
        raise ValueError(
            "`model` must have variational layers, such as "
            "`keras_bdl.layers.MeanFieldDense`. Convert a plain model with "
            f"`keras_bdl.convert`. Received: model={model.name!r} without any"
        )
    check_loss(model, loss)
    return _CACHE.get(
        model, loss_reference(loss), lambda: LikelihoodGradient(model, loss)
    )


def _parameters(model):
    return [
        variable
        for layer in variational_layers(model)
        for posterior in layer.weight_posteriors
        for variable in (posterior.mean, posterior.rho)
    ]


def _names(model):
    names = []
    layers = variational_layers(model)
    known = [layer.name for layer in layers]
    for i, layer in enumerate(layers):
        name = layer.name
        if known.count(name) > 1:  # nested models may share a name
            name = f"{i}/{name}"
        for posterior in layer.weight_posteriors:
            names += [
                (name, f"{name}/{posterior.mean.name}", "means"),
                (name, f"{name}/{posterior.rho.name}", "rhos"),
            ]
    return names
