"""Calls of a model that leave the model unchanged."""

import threading

import keras

# Held while a model is traced: some layers of Keras, such as recurrent cells
# with dropout, keep tensors as attributes in the meantime.
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
    with scope:
        return _Call(lambda x: model(x, training=training))(inputs)


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
