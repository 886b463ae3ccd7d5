"""Training runs with known weights."""

import keras
import numpy as np

from keras_bdl.distribute._replicas import variable_copies

X = np.random.default_rng(0).standard_normal((32, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


def network(**kwargs):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **kwargs})
    return model


def weights_of(model):
    return [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]


def copies_of(model):
    """Returns the variables of a model on each replica, and their values."""
    return [
        (copy, copy.numpy())
        for variable in [*model.variables, *model.optimizer.variables]
        for copy in variable_copies(variable)
    ]


class Follow(keras.callbacks.Callback):
    """Sets the weights to those of a given path at the end of epochs."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        self.model.set_weights(self.path[epoch])


class Record(keras.callbacks.Callback):
    """Records the weights of each epoch and of each visible step."""

    def __init__(self):
        super().__init__()
        self.epochs = []
        self.steps = {}

    def on_train_batch_end(self, batch, logs=None):
        step = int(np.array(self.model.optimizer.iterations))
        self.steps[step] = weights_of(self.model)

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(weights_of(self.model))


def path(epochs, center=0.0, spread=1.0):
    rng = np.random.default_rng(2)
    return [
        [
            np.float32(center + spread * rng.standard_normal(shape))
            for shape in [(3, 1), (1,)]
        ]
        for _ in range(epochs)
    ]
