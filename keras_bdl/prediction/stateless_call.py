"""Calls of a model that leave the model unchanged."""

import threading

import keras

from keras_bdl.prediction.recurrent_masks import own_masks

# Held while a model is traced: layers may keep tensors as attributes in the
# meantime.
TRACING = threading.RLock()


def stateless_call(model, inputs, scope, training):
    """Returns `model(inputs)`, computed with the values of a scope.

    Other threads may train the model or predict with it in the meantime.

    Args:
        model: A built Keras model.
        inputs: A batch, nested tensors.
        scope: A `keras.StatelessScope` with a value for each variable.
        training: The argument of the model.
    """
    known = len(model.variables)
    with scope, own_masks(model):
        outputs = _Call(lambda x: model(x, training=training))(inputs)
    if len(model.variables) != known:
        raise ValueError(
            "`model` must have all its variables before it predicts, and it "
            "made new ones when it was called. Call "
            f"`model(x, training={training})` once, and make the posterior "
            "after that. Received: new variables in model="
            f"{model.name!r}, {len(model.variables)} instead of {known}"
        )
    return outputs


class _Call(keras.layers.Layer):
    """Calls a function where Keras sees the call of a layer.

    Keras forgets the losses of the outermost layer that is called, and of all
    layers inside of it. Another thread may be about to add them up, so this
    layer, which has none, is the outermost one.
    """

    def __init__(self, function):
        # A model in mixed precision has a scope of its own.
        super().__init__(name="stateless_call", dtype="float32", autocast=False)
        self._function = function
        self.built = True

    def call(self, inputs):
        return self._function(inputs)
