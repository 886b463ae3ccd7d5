"""Natural-gradient optimizers on networks of several layers."""

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


@pytest.mark.parametrize("cls", OPTIMIZERS)
@pytest.mark.parametrize("frozen", ["hidden", "last"])
def test_training_continues_after_a_layer_was_frozen(cls, frozen):
    optimizer = cls()
    model = network(optimizer)
    model.fit(X, Y, verbose=0)
    before = optimizer.posterior(model)
    layer = model.get_layer(frozen)
    layer.trainable = False
    model.compile(optimizer, cross_entropy(), samples=2)
    kept = layer.get_weights()
    # The posterior of the others, before they move on.
    rest = optimizer.posterior(model)
    places = [2, 3] if frozen == "hidden" else [0, 1]
    for place, mean in zip(places, rest.mean(), strict=True):
        np.testing.assert_array_equal(before.mean()[place], mean)
    if cls is bdl.NoisyKFAC:
        old, (new,) = before.matrices[places[0] // 2], rest.matrices
        np.testing.assert_array_equal(new.variance, old.variance)
        assert new.variables == [0, 1]
    else:
        variances = [p.get_state()["variance"] for p in (before, rest)]
        for place, variance in zip(places, variances[1], strict=True):
            np.testing.assert_array_equal(variances[0][place], variance)
    model.fit(X, Y, verbose=0, validation_data=(X, Y))
    for w, old in zip(layer.get_weights(), kept, strict=True):
        np.testing.assert_array_equal(w, old)
    moved = optimizer.posterior(model).mean()
    for w, old in zip(moved, rest.mean(), strict=True):
        assert np.abs(w - old).max() > 0


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
        f.kernel.path: f for f in bdl.curvature.kronecker_factors(model, X, Y)
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
