"""What `compile` and `fit` refuse or warn of."""

import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._models._checks import DivergenceWarning
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
Y = X[:, :1]
CLASSES = np.arange(24) % 3
PARITY = np.arange(24) % 2
LOSS = bdl.likelihoods.Gaussian(1.0)
ENTROPY = cross_entropy()
SPARSE = keras.losses.SparseCategoricalCrossentropy
BINARY = keras.losses.BinaryCrossentropy
# Loss, activation, number of outputs, whether the outputs are wrong.
CASES = [
    ("sparse_categorical_crossentropy", None, 3, True),
    ("sparse_categorical_crossentropy", "softmax", 3, False),
    (SPARSE(from_logits=True), None, 3, False),
    (BINARY(), None, 1, True),
    (BINARY(), "sigmoid", 1, False),
    ("mse", None, 1, False),
]


def warned(loss, activation, outputs, y, **options):
    layer = keras.layers.Dense(
        outputs, activation=activation, kernel_initializer="ones"
    )
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile(loss=loss, **options)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(10 * X, y, batch_size=8, epochs=2, verbose=0)
    text = "expects probabilities, but the model returns values outside"
    return sum(text in str(one.message) for one in found)


@pytest.mark.parametrize(("loss", "activation", "outputs", "wrong"), CASES)
def test_logits_for_probabilities_warn_once(loss, activation, outputs, wrong):
    y = CLASSES if outputs == 3 else CLASSES[:, None] > 1
    assert warned(loss, activation, outputs, y) == wrong


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": bdl.VOGN(1e-3)},
        {"objective": bdl.objectives.TaylorVI("scalar")},
        {"jit_compile": True},
        {"train_samples": 2},
    ],
    ids=["VOGN", "TaylorVI", "XLA", "two samples"],
)
def test_every_training_step_sees_the_logits(options):
    assert warned(
        "sparse_categorical_crossentropy", None, 3, CLASSES, **options
    )


def test_a_step_that_was_traced_before_fit_sees_the_logits():
    layer = keras.layers.Dense(3, kernel_initializer="ones")
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile("sgd", "sparse_categorical_crossentropy")
    # A `CallbackList` of the user takes no callback of ours.
    theirs = keras.callbacks.CallbackList(model=model, add_history=True)
    model.fit(10 * X, CLASSES, verbose=0, callbacks=theirs)
    with pytest.warns(UserWarning, match="outside \\[0, 1\\]"):
        model.fit(10 * X, CLASSES, verbose=0)


def network_of(layer=keras.layers.Dense, **compile):
    model = bdl.Sequential([keras.Input((3,)), layer(2)])
    model.compile(**{"optimizer": "sgd", "loss": ENTROPY, **compile})
    return model


def test_diverging_training_warns_once():
    model = network_of(optimizer=keras.optimizers.SGD(1e9), loss="mse")
    with pytest.warns(UserWarning, match="training diverges") as found:
        model.fit(X, np.stack([PARITY, PARITY], 1), 4, epochs=4, verbose=0)
    assert len(found) == 1
    assert "optimizer=SGD" in str(found[0].message)


@pytest.mark.parametrize(
    "first, later, warns",
    [(2.0, 19990.0, False), (2.0, 20010.0, True), (1e-9, 9999.0, False),
     (1e6, 9e9, False), (-2.0, 20010.0, True), (2.0, np.inf, True)],
)  # fmt: skip
def test_loss_may_grow_ten_thousandfold(first, later, warns):
    watch = DivergenceWarning()
    watch.set_model(network_of())
    watch.on_train_begin()
    watch.on_train_batch_end(0, {"loss": first})
    watch.on_train_batch_end(1, {"loss": 1e30})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        watch.on_epoch_end(0, {"loss": later})
    assert bool(found) == warns


def test_first_epoch_of_loss_scaling_may_overflow():
    watch = DivergenceWarning()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    watch.set_model(network_of(optimizer=optimizer))
    watch.on_train_begin()
    watch.on_train_batch_end(0, {"loss": np.nan})
    watch.on_epoch_end(0, {"loss": np.nan})
    with pytest.warns(UserWarning, match="loss of nan in epoch 2"):
        watch.on_epoch_end(1, {"loss": np.nan})


@pytest.mark.parametrize(
    "logs", [{"a": 1.0}, {"loss": [1.0, 2.0]}, {"nll": "text"}]
)
def test_training_step_of_the_user_may_return_any_logs(logs):
    class Model(bdl.Sequential):
        def train_step(self, data):
            return {name: tf.constant(value) for name, value in logs.items()}

    model = Model([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", ENTROPY)
    model.fit(X, PARITY, verbose=0)


def test_rising_kl_of_annealing_gives_no_warning():
    watch = DivergenceWarning()
    watch.set_model(network_of())
    watch.on_train_begin()
    watch.on_train_batch_end(0, {"loss": 2.0, "nll": 2.0})
    watch.on_epoch_end(0, {"loss": 1e6, "nll": 1.0})


def test_callbacks_of_the_user_do_not_change():
    model, mine = network_of(), keras.callbacks.LambdaCallback()
    for given in (mine, [mine], (mine,), None):
        model.fit(X, PARITY, verbose=0, callbacks=given)
    container = keras.callbacks.CallbackList(
        [mine], add_history=True, model=model
    )
    model.fit(X, PARITY, verbose=0, callbacks=container)


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


@pytest.mark.parametrize(
    "cls, kwargs, received",
    [
        (OwnTrainStep, {"objective": bdl.objectives.MAP()}, "objective=MAP"),
        (OwnTrainStep, {"train_samples": 5}, "train_samples=5"),
        (OwnTrainStep, {"optimizer": bdl.IVON()}, "optimizer=IVON"),
        (OwnTrainStep, {"optimizer": bdl.VOGN()}, "optimizer=VOGN"),
        (OwnTrainStep, {"optimizer": bdl.KFAC()}, "optimizer=KFAC"),
        (OwnTrainStep, {"optimizer": bdl.NoisyKFAC()}, "optimizer=NoisyKFAC"),
        (OwnLoop, {"objective": bdl.objectives.MAP()}, "objective=MAP"),
        (OwnLoop, {"train_samples": 5}, "train_samples=5"),
        (OwnLoop, {"optimizer": bdl.IVON()}, "optimizer=IVON"),
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
    assert model.predict(X, verbose=0).shape == (24, 1)
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
