"""Natural-gradient optimizers on networks of several layers."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import keras_bdl as bdl
from tests.helpers import cross_entropy
from tests.optimizers.variational import X
from tests.optimizers.variational import Y

OPTIMIZERS = [bdl.VOGN, bdl.IVON, bdl.NoisyKFAC]


def network(optimizer, loss=None):
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(5, "tanh", name="hidden"),
            layers.Dense(3, name="last"),
        ]
    )
    model.compile(optimizer, loss or cross_entropy(), samples=2)
    return model


def curvatures(model):
    """Returns the curvature of each weight, as one array."""
    posterior = bdl.posterior_of(model)
    draws = [posterior.sample(seed) for seed in posterior.seeds(0, 2000)]
    variances = [np.var(w, axis=0) for w in zip(*draws, strict=True)]
    size = float(model.optimizer.number_of_examples())
    flat = np.concatenate([v.ravel() for v in variances])
    return 1 / (size * flat) - model.optimizer.prior_precision / size


@pytest.mark.parametrize("cls", OPTIMIZERS)
@pytest.mark.parametrize(
    "size, expected",
    [(None, 2.0), (1000, 1.5), (40_000, 0.06)],
    ids=["48 counted", "1,000 given", "40,000 given"],
)
def test_curvature_starts_at_the_documented_value_for_every_n(
    cls, size, expected
):
    # Steps of length zero, and a curvature that does not change.
    optimizer = cls(0.0, size, beta_2=1 - 1e-12, prior_precision=1e-3)
    model = network(optimizer)
    x, y = np.tile(X, (4, 1)), np.tile(Y, 4)
    with warnings.catch_warnings():
        # `fit` counts 48 examples.
        warnings.filterwarnings("ignore", ".* another number of observations")
        model.fit(x, y, batch_size=48, verbose=0)
    found = curvatures(model)
    # A variance from 2000 samples has a relative error of sqrt(2 / 2000).
    assert np.abs(found / expected - 1).max() < 5 * np.sqrt(2 / 2000)


@pytest.mark.parametrize("cls", [bdl.OGN, bdl.KFAC])
def test_first_steps_are_those_of_sgd_with_the_same_learning_rate(cls):
    x, y = np.tile(X, (4, 1)), np.tile(Y, 4)
    weights = []
    for optimizer in (
        cls(0.05, beta_2=1 - 1e-12, damping=0.0, prior_precision=1e-9),
        keras.optimizers.SGD(0.05, momentum=0.9),
    ):
        keras.utils.set_random_seed(0)
        model = network(optimizer)
        start = model.get_weights()
        model.fit(x, y, batch_size=len(x), epochs=4, verbose=0)
        weights.append(model.get_weights())
    for ours, theirs, first in zip(*weights, start, strict=True):
        np.testing.assert_allclose(ours - first, theirs - first, 1e-3, 1e-6)


@pytest.mark.parametrize("cls", OPTIMIZERS)
def test_each_of_several_outputs_has_its_own_loss(cls):
    inputs = keras.Input((4,))
    outputs = {
        "real": layers.Dense(2, name="real")(inputs),
        "class": layers.Dense(3, name="class")(inputs),
        "idle": layers.Dense(2, name="idle")(inputs),
    }
    model = bdl.Model(inputs, outputs)
    # There is no noise in the first step.
    start = 1e12 if cls is bdl.IVON else "first_batch"
    optimizer = cls(1e-3, initial_curvature=start)
    losses = {"real": "mse", "class": cross_entropy(), "idle": None}
    model.compile(optimizer, losses)
    y = {"real": X[:, :2], "class": Y, "idle": X[:, :2]}
    expected = [
        keras.losses.mean_squared_error(y["real"], model(X)["real"]),
        keras.losses.sparse_categorical_crossentropy(
            Y, model(X)["class"], from_logits=True
        ),
    ]
    expected = [np.mean(loss) for loss in expected]
    history = model.fit(X, y, batch_size=12, verbose=0).history
    np.testing.assert_allclose(history["real_loss"], expected[0], rtol=1e-4)
    np.testing.assert_allclose(history["class_loss"], expected[1], rtol=1e-4)
    np.testing.assert_allclose(history["loss"], sum(expected), rtol=1e-4)


@pytest.mark.parametrize(
    ("frozen", "cls"),
    [("hidden", bdl.VOGN), ("last", bdl.IVON), ("hidden", bdl.NoisyKFAC)],
)
def test_training_continues_after_a_layer_was_frozen(cls, frozen):
    optimizer = cls()
    model = network(optimizer)
    model.fit(X, Y, verbose=0)
    before = optimizer.posterior(model)
    layer = model.get_layer(frozen)
    layer.trainable = False
    model.compile(optimizer, cross_entropy(), samples=2)
    kept = layer.get_weights()
    # Until the next step, the posterior is that of the last training.
    same = optimizer.posterior(model)
    for w, old in zip(same.sample(0), before.sample(0), strict=True):
        np.testing.assert_array_equal(w, old)
    model.fit(X, Y, verbose=0, validation_data=(X, Y))
    for w, old in zip(layer.get_weights(), kept, strict=True):
        np.testing.assert_array_equal(w, old)
    # Then it is that of the others, which have moved on.
    rest = optimizer.posterior(model)
    places = [2, 3] if frozen == "hidden" else [0, 1]
    for place, mean in zip(places, rest.mean(), strict=True):
        assert np.abs(before.mean()[place] - mean).max() > 0
    if cls is bdl.NoisyKFAC:
        assert [m.variables for m in rest.matrices] == [[0, 1]]


@pytest.mark.parametrize("cls", OPTIMIZERS)
def test_error_names_variables_unknown_to_the_optimizer(cls):
    optimizer = cls(dataset_size=12)
    network(optimizer).fit(X, Y, verbose=0)
    other = network(optimizer)
    match = "with a new optimizer. Received: .*hidden/kernel"
    with pytest.raises(ValueError, match=match):
        optimizer.posterior(other)
    with pytest.raises(ValueError, match=match):
        other.fit(X, Y, verbose=0)


def test_freezing_a_bias_without_its_kernel_is_refused():
    model = network(bdl.NoisyKFAC())
    model.fit(X, Y, verbose=0)
    model.get_layer("last").bias.trainable = False
    model.make_train_function(force=True)
    with pytest.raises(ValueError, match="frozen together.*last/kernel"):
        model.fit(X, Y, verbose=0)


class Backwards(bdl.Model):
    """Calls its layers in another order than they were made in."""

    def __init__(self):
        super().__init__()
        self.last = layers.Dense(4, name="last")
        self.first = layers.Dense(4, name="first")

    def call(self, x):
        return self.last(self.first(x))


def test_factors_belong_to_their_layer_in_any_order_of_calls():
    # As many inputs and outputs of both, so that they could be exchanged.
    model = Backwards()
    model(X)
    optimizer = bdl.NoisyKFAC(initial_curvature="first_batch")
    model.compile(optimizer, cross_entropy())
    expected = {
        f.kernel.path: f for f in bdl.curvature.kronecker_factors(model, (X, Y))
    }
    model.fit(X, Y, batch_size=12, verbose=0)
    matrices = model.optimizer._matrices
    assert len(matrices) == 2
    for matrix in matrices:
        found = expected[matrix.kernel.path]
        for factor, of_batch in zip(
            matrix.factors, (found.inputs, found.outputs), strict=True
        ):
            np.testing.assert_allclose(factor, of_batch, rtol=1e-5, atol=1e-6)


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, x):
        return self.dense(x)


@pytest.mark.parametrize("cls", [bdl.VOGN, bdl.IVON, bdl.KFAC])
def test_plain_model_is_told_how_to_become_one_of_ours(cls):
    model = Subclass()
    model.compile(cls(dataset_size=12), cross_entropy())
    message = (
        f"`{cls.__name__}` runs the training step itself.* "
        r"`model = keras_bdl.Model\(model.inputs, model.outputs\)`.*"
        "derive a subclass from `keras_bdl.Model`.*Received: the gradients of 2"
    )
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, verbose=0)
