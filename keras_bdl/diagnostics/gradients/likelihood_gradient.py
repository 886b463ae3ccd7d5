"""The gradient of the likelihood at one draw of the weights, compiled."""

import weakref

import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.diagnostics.training_loss import check_loss
from keras_bdl.diagnostics.training_loss import compiled_loss
from keras_bdl.diagnostics.training_loss import loss_reference
from keras_bdl.diagnostics.training_loss import mean_loss
from keras_bdl.layers.variational_layers import variational_layers
from keras_bdl.prediction.traced import ModelCache
from keras_bdl.prediction.traced import traced

_CACHE = ModelCache()


class LikelihoodGradient:
    """Draws all weights of a model once, and adds up the gradient.

    Made by `likelihood_gradient_of`, which keeps one per model and loss.

    Args:
        model: A built Keras model with variational layers.
        loss: As `compile` takes it, or `None`: the one it is compiled with.

    Attributes:
        names: A triple of layer, variable and kind, `"means"` or `"rhos"`,
            for each gradient.
    """

    def __init__(self, model, loss):
        self.names = _names(model)
        self._model = weakref.ref(model)
        self._loss = None if loss is None else compiled_loss(loss)
        self._function = traced(model, self._step)

    def __call__(self, x, y, count, means):
        """Takes in one draw.

        Args:
            x: Inputs.
            y: Targets.
            count: Number of this draw, from 1 on, a float32 tensor.
            means: Means of the gradients of the draws before.

        Returns:
            The means of all draws so far, and a vector of the squared
            deviations of this one, see (2) of `gradient_variance`.
        """
        return self._function(x, y, count, means)

    def zeros(self):
        """Returns the means before the first draw."""
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


def likelihood_gradient_of(model, loss) -> LikelihoodGradient:
    """Returns that of a model, the one it had if there is one.

    Args:
        model: A Keras model.
        loss: As `compile` takes it, or `None`: the one it is compiled with.
    """
    if not variational_layers(model):
        raise ValueError(
            "`model` must have variational layers, such as "
            "`keras_bdl.layers.MeanFieldDense`; `keras_bdl.convert` makes "
            f"them. Received: model={model.name!r} without one"
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
        if known.count(name) > 1:  # in two models within the model
            name = f"{i}/{name}"
        for posterior in layer.weight_posteriors:
            names += [
                (name, f"{name}/{posterior.mean.name}", "means"),
                (name, f"{name}/{posterior.rho.name}", "rhos"),
            ]
    return names
