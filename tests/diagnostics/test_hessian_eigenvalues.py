import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import keras_bdl as bdl
from keras_bdl.diagnostics import hessian_eigenvalues
from tests.diagnostics import networks
from tests.diagnostics.networks import Count
from tests.diagnostics.networks import X
from tests.diagnostics.networks import Y
from tests.diagnostics.networks import softmax_regression


def measure(model, x=X, y=Y, **kwargs):
    return hessian_eigenvalues(model, (x, y), verbose=0, **kwargs)


def softmax_hessian(model):
    """Returns the Hessian of kernel and bias by its formula."""
    ones = np.hstack([X, np.ones((21, 1))]).astype("d")
    p = special.softmax(networks.logits(model.get_weights()), 1)
    of_logits = np.einsum("ni,ij->nij", p, np.eye(4)) - np.einsum(
        "ni,nj->nij", p, p
    )
    hessian = np.einsum("na,nb,nij->aibj", ones, ones, of_logits) / 21
    return hessian.reshape(16, 16)


@pytest.mark.parametrize("kind", [keras.Sequential, bdl.Sequential])
def test_eigenvalues_of_softmax_regression_equal_its_formula(kind):
    model = softmax_regression(
        kind, kernel_regularizer=keras.regularizers.L2(0.05)
    )
    Count.traces = 0
    found = measure(model, weight_decay=0.1, batch_size=7)
    again = measure(model, weight_decay=0.1, batch_size=7)
    assert Count.traces == 1
    penalty = 0.1 + 0.1 * (np.arange(16) < 12)
    values, vectors = np.linalg.eigh(softmax_hessian(model) + np.diag(penalty))
    assert found.minimum == pytest.approx(values[0], rel=1e-5)
    assert found.maximum == pytest.approx(values[-1], rel=1e-5)
    assert abs(found.vectors[1] @ vectors[:, -1]) == pytest.approx(1)
    assert again.maximum == found.maximum


def by_differences(model, x, training, step=1e-3):
    """Returns the Hessian from finite differences of losses."""
    variables = model.trainable_variables
    start = networks.flat(variables)

    def gradient(vector):
        for v, a in zip(
            variables,
            np.split(vector, np.cumsum([v.numpy().size for v in variables])),
            strict=False,
        ):
            v.assign(a.reshape(v.shape))
        with tf.GradientTape() as tape:
            loss = networks.LOSS(Y, model(x, training=training))
        return networks.flat(tape.gradient(loss, [v.value for v in variables]))

    kept = model.get_weights()
    columns = [
        (gradient(start + step * unit) - gradient(start - step * unit))
        / (2 * step)
        for unit in np.eye(len(start))
    ]
    model.set_weights(kept)
    return np.stack(columns)


@pytest.mark.parametrize("training", [False, True])
def test_eigenvalues_with_batch_norm_equal_differences_of_gradients(training):
    model = networks.with_batch_norm()
    before = networks.state(model)
    # Far from the origin, where the mean matters for second derivatives.
    x = X + 2
    found = measure(model, x, training=training, batch_size=21)
    networks.assert_same(networks.state(model), before)
    dense = by_differences(model, x, training)
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    assert len(values) > 20, "decomposed and not iterated"
    width = values[-1] - values[0]
    assert found.minimum == pytest.approx(values[0], abs=2e-3 * width)
    assert found.maximum == pytest.approx(values[-1], abs=2e-3 * width)
    assert values[0] < -0.005 * width, "no negative end to find"
    assert max(found.residuals) < 1e-2 * width
    assert np.abs(found.vectors[1] @ vectors[:, -1]) > 0.99


def test_least_eigenvalue_of_a_convex_loss_is_zero():
    # Three features that never vary: most of the spectrum is zero.
    x = np.hstack([X, np.zeros((21, 3), "f")])
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    model.compile("sgd", networks.LOSS)
    found = measure(model, x)
    assert abs(found.minimum) < 1e-5 * found.maximum
    assert found.size == 28 and found.products < 100


def test_dropout_is_the_same_in_every_product():
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(5, activation="tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(4),
        ]
    )
    model.compile("sgd", networks.LOSS)
    found = measure(model, training=True)
    assert max(found.residuals) < 1e-2 * found.maximum
    assert found.maximum == measure(model, training=True).maximum


def test_eigenvalues_of_a_quadratic_are_equal_or_zero():
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(10, use_bias=False)]
    )
    model.compile("sgd", lambda y, z: 0 * z)
    flat = measure(model)
    assert flat.minimum == flat.maximum == 0
    found = measure(model, weight_decay=0.2)
    assert found.minimum == pytest.approx(0.2)
    assert found.maximum == pytest.approx(0.2)


def test_result_under_a_strategy_equals_that_of_one_device(mirrored):
    with mirrored.scope():
        model = softmax_regression()
    values = np.linalg.eigvalsh(softmax_hessian(model))
    assert measure(model).maximum == pytest.approx(values[-1], rel=1e-5)


def test_report_prints_and_saves_its_numbers():
    found = measure(softmax_regression())
    assert "21 examples, 16 weights" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["maximum"] == found.maximum
    assert [d[0].shape for d in found.directions()] == [(3, 4)] * 2


def test_wrong_input_is_refused():
    model = softmax_regression()
    for message, arguments in (
        ("`tolerance` must be", {"tolerance": 0.0}),
        ("`max_restarts` must be", {"max_restarts": 0}),
        ("`weight_decay` must be", {"weight_decay": -1.0}),
        ("`verbose` must be", {"verbose": 7}),
    ):
        with pytest.raises(ValueError, match=message):
            hessian_eigenvalues(model, (X, Y), **arguments)
    model.set_weights([np.full((3, 4), np.nan), np.zeros(4)])
    with pytest.raises(ValueError, match="must have a finite Hessian"):
        measure(model)
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(20, "tanh"),
            keras.layers.Dense(4),
        ]
    )
    model.compile("sgd", networks.LOSS)
    with pytest.raises(RuntimeError, match="did not converge.*max_restarts=1"):
        measure(model, max_restarts=1, tolerance=1e-12)
