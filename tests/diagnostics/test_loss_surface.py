import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import keras_bdl as bdl
from keras_bdl.diagnostics import loss_cross_section
from keras_bdl.diagnostics import loss_plane
from keras_bdl.diagnostics import posterior_eigenvectors
from keras_bdl.diagnostics._loss_sections import LossCrossSectionReport
from keras_bdl.diagnostics._loss_sections import LossPlaneReport
from keras_bdl.posteriors import LowRankGaussian
from tests.diagnostics import networks
from tests.diagnostics.networks import LOSS
from tests.diagnostics.networks import Count
from tests.diagnostics.networks import X
from tests.diagnostics.networks import Y
from tests.diagnostics.networks import error
from tests.diagnostics.networks import nll
from tests.diagnostics.networks import softmax_regression

DISTANCES = [-2.0, 0.0, 0.5, 3.0]


def section(model, directions, distances=DISTANCES, data=(X, Y), **kwargs):
    return loss_cross_section(
        model, data, directions, distances=distances, verbose=0, **kwargs
    )


def plane(model, directions, distances=DISTANCES, data=(X, Y), **kwargs):
    return loss_plane(
        model, data, directions, distances=distances, verbose=0, **kwargs
    )


def directions(count=2):
    rng = np.random.default_rng(1)
    return [[rng.normal(size=(3, 4)), rng.normal(size=4)] for _ in range(count)]


def moved(weights, steps):
    """Adds multiples of the directions of length 1."""
    for direction, step in zip(directions(), steps, strict=False):
        length = np.linalg.norm(networks.flat(direction))
        weights = [
            w + step * d / length
            for w, d in zip(weights, direction, strict=True)
        ]
    return weights


def posterior():
    rng = np.random.default_rng(2)
    mean = [rng.normal(size=(3, 4)), rng.normal(size=4)]
    columns = [rng.normal(size=(3, *m.shape)) for m in mean]
    return LowRankGaussian(mean, [m**2 for m in mean], columns)


@pytest.mark.parametrize("kind", [keras.Sequential, bdl.Sequential])
def test_cross_section_equals_numpy_and_is_traced_once(kind):
    model = softmax_regression(kind)
    before = networks.state(model)
    start = model.get_weights()
    Count.traces = 0
    found = section(model, directions(), batch_size=7)
    again = section(model, directions(), [1.0], batch_size=7)
    assert Count.traces == 1
    for i in range(2):
        for j, t in enumerate(DISTANCES):
            weights = moved(start, [t, 0] if i == 0 else [0, t])
            assert found.loss[i][j] == pytest.approx(nll(weights), rel=1e-5)
            assert found.error[i][j] == pytest.approx(error(weights))
    assert again.loss[1][0] == pytest.approx(nll(moved(start, [0, 1.0])))
    assert found.examples == 21 and found.stddevs is None
    np.testing.assert_array_equal(found.penalty, 0)
    networks.assert_same(networks.state(model), before)


def test_penalty_is_regularizers_weight_decay_and_prior():
    model = softmax_regression(kernel_regularizer=keras.regularizers.L2(0.02))
    prior = bdl.priors.Normal(stddev=0.7)
    found = section(model, directions(1), weight_decay=0.3, prior=prior)
    for t, penalty in zip(DISTANCES, found.penalty[0], strict=True):
        kernel, bias = moved(model.get_weights(), [t])
        expected = 0.02 * np.sum(kernel**2)
        expected += 0.15 * (np.sum(kernel**2) + np.sum(bias**2))
        expected -= stats.norm(scale=0.7).logpdf(bias).sum() / 21
        assert penalty == pytest.approx(expected, rel=1e-5)
    total = np.add(found.loss, found.penalty)
    np.testing.assert_allclose(found.total, total)
    density = 21 * (total.min() - total)
    np.testing.assert_allclose(found.log_density, density)


def test_plane_around_a_posterior_has_its_mean_and_covariance():
    model, swag = softmax_regression(), posterior()
    axes = posterior_eigenvectors(swag, count=3)
    distances = DISTANCES, [-1.0, 1.5]
    found = plane(model, axes.directions(0, 2), distances, center=swag)
    units = axes.vectors[[0, 2]]
    for i, t in enumerate(DISTANCES):
        for j, u in enumerate(distances[1]):
            vector = networks.flat(swag.mean()) + np.dot([t, u], units)
            weights = vector[:12].reshape(3, 4), vector[12:]
            assert found.loss[i][j] == pytest.approx(nll(weights), rel=1e-5)
    columns = swag.get_state()["deviations"]
    columns = np.concatenate([c.reshape(3, -1) for c in columns], 1)
    variance = networks.flat(swag.get_state()["variance"])
    dense = 0.5 * (np.diag(variance) + columns.T @ columns / 2)
    expected = units @ dense @ units.T
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-5)
    rays = section(model, axes.directions(0, 2), center=swag)
    np.testing.assert_allclose(rays.stddevs, np.sqrt(np.diag(expected)))
    np.testing.assert_allclose(
        rays.loss[0][1], plane(model, units, [0.0], center=swag).loss[0][0]
    )


def test_batch_norm_statistics_are_estimated_again_at_each_point():
    model = networks.with_batch_norm()
    before = networks.state(model)
    start = model.trainable_weights
    rng = np.random.default_rng(3)
    direction = [rng.normal(size=w.shape) for w in start]
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    found = section(model, [direction], data=data, batch_norm_data=data)
    networks.assert_same(networks.state(model), before)
    with pytest.warns(UserWarning, match="BatchNorm statistics belong"):
        stale = section(model, [direction], data=data)
    unit = [d / np.linalg.norm(networks.flat(direction)) for d in direction]
    weights = [w.numpy() for w in start]
    for i, t in enumerate(DISTANCES):
        for variable, w, u in zip(start, weights, unit, strict=True):
            variable.assign(w + t * u)
        bdl.prediction.reestimate_batch_norm(model, data)
        expected = model.evaluate(X, Y, batch_size=21, verbose=0)
        assert found.loss[0][i] == pytest.approx(expected, rel=1e-5)
        assert abs(stale.loss[0][i] - expected) > 1e-3


def test_sample_weights_and_other_losses():
    weight = np.linspace(0, 2, 21, dtype="f")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    direction = [np.ones((3, 1)), np.ones(1)]
    data = X, X[:, 0], weight
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    labels = (X[:, 1] > 0).astype("f")
    found = section(model, [direction], data=data, batch_size=5)
    other = section(model, [direction], data=(X, labels), loss=binary)
    assert np.isnan(found.error).all()
    for i, t in enumerate(DISTANCES):
        kernel, bias = [w + t / 2 for w in model.get_weights()]
        z = (X @ kernel + bias)[:, 0]
        expected = np.mean(weight * (z - X[:, 0]) ** 2)
        assert found.loss[0][i] == pytest.approx(expected, rel=1e-5)
        expected = np.mean(np.logaddexp(0, z) - labels * z)
        assert other.loss[0][i] == pytest.approx(expected, rel=1e-5)
        assert other.error[0][i] == pytest.approx(np.mean((z > 0) != labels))


def fails(y_true, y_pred):
    raise ZeroDivisionError


def test_model_does_not_change_after_an_error():
    model = networks.with_batch_norm()
    before = networks.state(model)
    direction = np.ones(len(networks.flat(model.trainable_weights)))
    with pytest.raises(ZeroDivisionError):
        section(model, [direction], loss=fails, batch_norm_data=X)
    networks.assert_same(networks.state(model), before)
    assert not model.losses


def test_result_under_a_strategy_equals_that_of_one_device(mirrored):
    with mirrored.scope():
        model = softmax_regression()
    start = model.get_weights()
    found = section(model, directions(1))
    assert found.loss[0][3] == pytest.approx(nll(moved(start, [3.0])), rel=1e-5)
    networks.assert_same(model.get_weights(), start)


def test_reports_print_and_come_back_from_json():
    model, swag = softmax_regression(), posterior()
    axes = posterior_eigenvectors(swag, count=2).directions()
    for cls, found in (
        (LossCrossSectionReport, section(model, axes, center=swag)),
        (LossPlaneReport, plane(model, axes, center=swag)),
    ):
        assert cls(**json.loads(json.dumps(found.to_dict()))) == found
        assert "Loss of 21 examples" in str(found)
        assert f"{found.total.min():.4f}" in str(found)


def test_wrong_input_is_refused():
    model, rays = softmax_regression(), directions()
    drawn = bdl.convert(model, "mean_field", dataset_size=21)
    bare = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    for message, call in (
        ("not compiled with one", lambda: section(bare, rays)),
        ("must be a `keras.Model`", lambda: section(model.layers[0], rays)),
        ("must have ordinary weights", lambda: section(drawn, rays, loss=LOSS)),
        ("`distances` must be", lambda: section(model, rays, [])),
        ("`distances` must be", lambda: section(model, rays, 2.0)),
        ("finite numbers", lambda: plane(model, rays, [np.nan])),
        ("two directions", lambda: plane(model, rays[:1])),
        ("must be orthogonal", lambda: plane(model, rays)),
        (
            "`verbose` must be",
            lambda: loss_plane(model, (X, Y), rays, distances=[0.0], verbose=3),
        ),
        ("must have labels", lambda: section(model, rays, data=X)),
        ("can be read again", lambda: section(model, rays, data=iter([]))),
        (
            "`center` must have",
            lambda: section(model, rays, center=rays[0][:1]),
        ),
        ("`weight_decay` must", lambda: section(model, rays, weight_decay=-1)),
        (
            "belong to this arch",
            lambda: section(
                networks.with_batch_norm(),
                rays,
                center=posterior(),
                batch_norm_data=X,
            ),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_report_ignores_points_that_are_not_finite():
    zeros = [[0.0, 0.0, 0.0]]
    section = LossCrossSectionReport(
        examples=2,
        distances=[-1.0, 0.0, 1.0],
        loss=[[np.nan, 3.0, 1.0]],
        penalty=zeros,
        error=zeros,
    )
    [(_, rows)] = section.sections()
    assert rows[1][1:4] == [1.0, "1", 3.0]
    np.testing.assert_array_equal(section.log_density, [[np.nan, -4.0, 0.0]])
