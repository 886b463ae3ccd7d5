"""Subclasses that override a step, the loss or the training function."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl

X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
Y = X[:, :1]
LOSS = bdl.likelihoods.Gaussian(1.0)


class OwnTrainStep(bdl.Sequential):
    """The training step of the guides of Keras."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class Average(OwnTrainStep):
    """A training step that averages over the samples itself."""

    def train_step(self, data):
        x, y = data
        outputs = [self(x, training=True) for _ in range(self.train_samples)]
        losses = [self.compute_loss(x, y, y_pred) for y_pred in outputs]
        return self.finish_draws(losses, x, y, outputs)


class CallsObjective(bdl.Sequential):
    def train_step(self, data):
        return self.objective.bayesian_train_step(self, data)


class CallsSuper(bdl.Sequential):
    def train_step(self, data):
        return super().train_step(data)

    def test_step(self, data):
        return super().test_step(data)

    def predict_step(self, data):
        return super().predict_step(data)


class OwnLoop(bdl.Sequential):
    def make_train_function(self, force=False):
        def function(iterator):
            next(iterator)
            return {"loss": 0.0}

        self.train_function = function


class OwnTestStep(bdl.Sequential):
    def test_step(self, data):
        x, y = data
        return {"loss": self.compute_loss(y=y, y_pred=self(x), training=False)}


class OwnPredictStep(bdl.Sequential):
    def predict_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self(x, training=False)


class LossOfDataOnly(bdl.Sequential):
    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        return keras.ops.mean(keras.ops.square(y - y_pred))


class LossWithPenalties(LossOfDataOnly):
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs) + sum(self.losses)


class StepOfDataOnly(bdl.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(y - self(x, training=True)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def compiled(cls, optimizer="sgd", layer=keras.layers.Dense, **kwargs):
    model = cls([keras.Input((3,)), layer(1)])
    model.compile(optimizer, LOSS, **kwargs)
    return model


@pytest.mark.parametrize("cls", [OwnTrainStep, OwnLoop])
@pytest.mark.parametrize(
    "kwargs, received",
    [
        ({"objective": bdl.objectives.MAP()}, "objective=MAP"),
        ({"train_samples": 5}, "train_samples=5"),
        ({"optimizer": bdl.IVON()}, "optimizer=IVON"),
        ({"optimizer": bdl.VOGN()}, "optimizer=VOGN"),
        ({"optimizer": bdl.KFAC()}, "optimizer=KFAC"),
        ({"optimizer": bdl.NoisyKFAC()}, "optimizer=NoisyKFAC"),
    ],
)
def test_training_that_ignores_an_argument_of_compile_is_refused(
    cls, kwargs, received
):
    model = compiled(cls, **kwargs)
    before = model.get_weights()
    # The optimizers raise the first of these errors themselves.
    with pytest.raises(
        ValueError, match=f"runs the training step itself|{received}$"
    ):
        model.fit(X, Y, verbose=0)
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_samples_that_a_step_ignores_are_refused():
    dense = bdl.layers.MeanFieldDense
    error = r"`{0}_step` of `Own{1}Step` .* `super\(\).{0}_step.*samples=4$"
    model = compiled(OwnTestStep, layer=dense, samples=4)
    with pytest.raises(ValueError, match=error.format("test", "Test")):
        model.evaluate(X, Y, verbose=0)
    model = compiled(OwnPredictStep, layer=dense, samples=4)
    with pytest.raises(ValueError, match=error.format("predict", "Predict")):
        model.predict(X, verbose=0)


@pytest.mark.parametrize(
    "cls, layer",
    [
        (LossOfDataOnly, bdl.layers.MeanFieldDense),
        (StepOfDataOnly, bdl.layers.MeanFieldDense),
        (
            LossOfDataOnly,
            lambda n: keras.layers.Dense(
                n, kernel_regularizer=bdl.priors.Normal(1.0)
            ),
        ),
    ],
)
def test_a_loss_without_the_kl_or_the_prior_is_refused(cls, layer):
    model = compiled(cls, layer=layer)
    with pytest.raises(
        ValueError, match="leaves out `model.losses`.*(MeanFieldDense|Normal)"
    ):
        model.fit(X, Y, verbose=0)


def test_own_steps_that_use_everything_train():
    compiled(OwnTrainStep).fit(X, Y, verbose=0)
    compiled(Average, train_samples=3).fit(X, Y, verbose=0)
    objective = bdl.objectives.MAP()
    compiled(CallsObjective, objective=objective).fit(X, Y, verbose=0)
    for cls in (CallsSuper, OwnTrainStep, LossWithPenalties):
        model = compiled(cls, layer=bdl.layers.MeanFieldDense)
        model.fit(X, Y, verbose=0)
    model = compiled(
        CallsSuper,
        layer=bdl.layers.MeanFieldDense,
        train_samples=2,
        samples=2,
    )
    model.fit(X, Y, validation_data=(X, Y), verbose=0)
    assert model.predict(X, verbose=0).shape == (20, 1)
    # Nothing depends on N, so a loss of the data alone is complete.
    compiled(LossOfDataOnly).fit(X, Y, verbose=0)


def test_an_own_training_step_is_counted():
    class Sizes(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            size = (8, 4, 8)[index]
            return X[:size], Y[:size]

    model = compiled(OwnTrainStep, bdl.SGLD(1e-4))
    message = re.escape("20 training examples, where `fit` had estimated 24")
    with pytest.warns(UserWarning, match=message):
        model.fit(Sizes(), verbose=0)
    assert model.optimizer.dataset_size.counted == 20
