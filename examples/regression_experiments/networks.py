"""The networks of the regressions, and their training."""

import dataclasses
import functools

import keras
import tensorflow as tf

import keras_bdl as bdl

BATCH = 64
EPOCHS = 20  # of 100 steps each, not passes over the data
HIDDEN = 50
MEMBERS, SAMPLES = 4, 40
ESTIMATORS = {"mean_field": "local", "radial": "flipout"}
# Gains of priors: variance of a weight times the number of inputs of its layer.
GAINS = {"mode": 1, "SWAG": 1, "dropout": 4, "variational": 4, "sampling": 4}


@dataclasses.dataclass
class Settings:
    """Settings that differ between the two data sets."""

    bias_stddev: float  # of the prior
    swag_rates: tuple
    speed: float  # of the samplers
    cycle: int  # of the samplers, in epochs


TABLES = Settings(1.0, (0.05, 0.03), speed=0.003, cycle=2)
WAVE = Settings(3.0, (0.02, 0.01), speed=0.0015, cycle=4)


class Networks:
    """Trains networks of one architecture, for one split after the other.

    A network is built and traced once. For each split, its weights and its
    optimizer start anew; only the random numbers of its layers continue.
    """

    def __init__(self, split, noise, settings, smoke=False):
        self.size, self.inputs = split.train[0].shape
        self.noise, self.settings = noise, settings
        self.epochs = 3 if smoke else EPOCHS
        self.steps = 2 if smoke else 100  # of an epoch
        self.members = 2 if smoke else MEMBERS
        self.samples = 3 if smoke else SAMPLES  # of a chain
        self.built = {}

    def prior(self, kind):
        # N is given: an epoch is not one pass over the data.
        return bdl.priors.HeNormal(
            GAINS[kind], self.settings.bias_stddev, dataset_size=self.size
        )

    def architecture(self, kind=None, dropout=None):
        """Returns the network; with a `kind`, its loss includes the prior."""
        prior = kind and self.prior(kind)
        dense = functools.partial(
            keras.layers.Dense, kernel_regularizer=prior, bias_regularizer=prior
        )
        inputs = keras.Input((self.inputs,))
        x = dense(HIDDEN, "tanh")(inputs)
        if dropout:
            x = keras.layers.Dropout(dropout)(x)
        if self.noise == "constant":
            outputs = bdl.likelihoods.LearnedStddev()(dense(1)(x))
        else:
            outputs = dense(2, bdl.likelihoods.mean_and_stddev)(x)
        return bdl.Model(inputs, outputs)

    def variational(self, kind):
        return bdl.convert(
            self.architecture(),
            kind,
            estimator=ESTIMATORS[kind],
            prior=self.prior("variational"),
            means_from_weights=False,
            dataset_size=self.size,
        )

    def adam(self, epochs):
        rate = keras.optimizers.schedules.CosineDecay(1e-2, epochs * self.steps)
        return keras.optimizers.Adam(rate)

    def fit(self, split, name, build, optimizer, epochs, callbacks=()):
        """Returns the network of a name, trained on a split.

        Args:
            split: A `Split`.
            name: Pair of the kind of network and its number, also its seed.
            build: Function that returns the network.
            optimizer: Function that returns the optimizer.
            epochs: Number of epochs.
            callbacks: Callbacks of `fit`.
        """
        keras.utils.set_random_seed(1000 * split.seed + name[1])
        start = build().get_weights()
        if name not in self.built:
            model = build()
            model.compile(
                optimizer(),
                bdl.likelihoods.Gaussian(),
                steps_per_execution=self.steps // 2,
            )
            model.optimizer.build(model.trainable_variables)
            state = [v.numpy() for v in model.optimizer.variables]
            self.built[name] = model, state
        model, state = self.built[name]
        model.set_weights(start)
        for variable, x in zip(model.optimizer.variables, state, strict=True):
            variable.assign(x)
        data = tf.data.Dataset.from_tensor_slices(split.standard).cache()
        data = data.shuffle(split.size, seed=name[1]).repeat().batch(BATCH)
        model.fit(
            data,
            epochs=epochs,
            steps_per_epoch=self.steps,
            shuffle=False,  # the data are shuffled already
            verbose=0,
            callbacks=list(callbacks),
        )
        return model

    def mode(self, split, member=0):
        """A network with the most probable weights."""
        return self.fit(
            split,
            ("mode", member),
            functools.partial(self.architecture, "mode"),
            functools.partial(self.adam, self.epochs),
            self.epochs,
        )

    def distribution(self, split, kind, member=0):
        """A network of variational layers."""
        return self.fit(
            split,
            (kind, member),
            functools.partial(self.variational, kind),
            functools.partial(self.adam, 2 * self.epochs),
            2 * self.epochs,
        )

    def predict(self, split, x, model, posterior=None):
        """Returns the prediction in the units of the data."""
        prediction = bdl.predict(
            model,
            split.inputs(x),
            posterior,
            batch_size=512,
            keep_samples=True,
            verbose=0,
        )
        return prediction.rescaled(split.y_stddev, split.y_mean)
