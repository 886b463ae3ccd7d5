"""Trains the networks of the comparison, each of them once."""

import dataclasses
import time
from typing import Any

import keras
import tensorflow as tf

import keras_bdl as bdl


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much every method may train and predict."""

    epochs: int
    batch_size: int
    members: int  # of an ensemble
    samples: int  # of a posterior
    filters: tuple
    units: int


def network(task, budget, *, dropout=0.0, activation="relu"):
    """Returns the network of all methods: two convolutions, two dense layers.

    Args:
        task: The `Task`.
        budget: The `Budget`.
        dropout: Rate before each dense layer. Defaults to `0.0`: no dropout.
        activation: Activation of the hidden layers. Defaults to `"relu"`.
    """
    large = task.input_shape[0] >= 20
    x = inputs = keras.Input(task.input_shape)
    for filters in budget.filters:
        x = keras.layers.Conv2D(
            filters,
            5 if large else 3,
            padding="valid" if large else "same",
            activation=activation,
        )(x)
        x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    if dropout:
        x = keras.layers.Dropout(dropout)(x)
    x = keras.layers.Dense(budget.units, activation)(x)
    if dropout:
        x = keras.layers.Dropout(dropout)(x)
    return bdl.Model(inputs, keras.layers.Dense(task.num_classes)(x))


class Training:
    """The networks of one seed. Methods share them.

    Subclasses may change `loss` and `network`.

    Args:
        task: The `Task`.
        budget: The `Budget`.
        seed: Seed of the weights, of the order of the images and of the noise.
    """

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def __init__(self, task, budget, seed):
        self.task, self.budget, self.seed = task, budget, seed
        self.seconds = 0.0  # of the networks that the present method uses
        self.spent = 0.0  # in `once`
        self._trained = {}
        x, _ = task.train
        self.steps_per_epoch = -(-len(x) // budget.batch_size)
        self.steps = budget.epochs * self.steps_per_epoch

    def once(self, key, train):
        """Returns `train()`. A second call with the key returns its result."""
        if key not in self._trained:
            start = time.perf_counter()
            trained = train()
            seconds = time.perf_counter() - start
            self._trained[key] = trained, seconds
            self.spent += seconds
        trained, seconds = self._trained[key]
        self.seconds += seconds
        return trained

    def cosine(self, learning_rate):
        """Returns a learning rate that falls to zero along a cosine."""
        return keras.optimizers.schedules.CosineDecay(learning_rate, self.steps)

    def fit(
        self, model: Any, optimizer: Any, *, member=0, epochs=1, callbacks=(),
        **compile,
    ):  # fmt: skip
        """Trains a model, and returns it.

        Args:
            model: A `keras_bdl.Model`.
            optimizer: The optimizer.
            member: Number of the network in an ensemble. Defaults to `0`.
            epochs: Length of the training, in those of the budget. Defaults
                to `1`.
            callbacks: Callbacks. Defaults to none.
            **compile: Other arguments of `compile`.
        """
        model.compile(optimizer, self.loss, **compile)
        x, y = self.task.train
        # Keras repeats one order of arrays, which biases samplers.
        data = tf.data.Dataset.from_tensor_slices((x, y))
        data = data.shuffle(len(x), seed=1000 * self.seed + member)
        model.fit(
            data.batch(self.budget.batch_size),
            epochs=epochs * self.budget.epochs,
            shuffle=False,  # the data are shuffled already
            verbose=0,
            callbacks=[*callbacks, EpochBar()],
        )
        return model

    def start(self, member=0, **options):
        """Returns a new network with the weights of a seed.

        Args:
            member: Number of the network in an ensemble. Defaults to `0`.
            **options: Arguments of `network`.
        """
        keras.utils.set_random_seed(1000 * self.seed + member)
        return self.network(**options)

    def network(self, **options):
        """Returns a new network."""
        return network(self.task, self.budget, **options)


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    def on_train_begin(self, logs=None):
        self.bar = keras.utils.Progbar(
            self.params["epochs"], stateful_metrics=["loss"], unit_name="epoch"
        )

    def on_epoch_end(self, epoch, logs=None):
        self.bar.update(epoch + 1, [("loss", float(logs["loss"]))])
