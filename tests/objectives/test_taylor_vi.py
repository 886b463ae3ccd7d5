import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.extend import SquaredGradient
from keras_bdl.objectives import Hutchinson
from keras_bdl.objectives import PerExampleFisher
from keras_bdl.objectives import TaylorVI
from tests.objectives.transcription import N
from tests.objectives.transcription import kl
from tests.objectives.transcription import linear_regression
from tests.objectives.transcription import nll
from tests.objectives.transcription import numerical_gradient
from tests.objectives.transcription import squares
from tests.objectives.transcription import start
from tests.objectives.transcription import taylor
from tests.optimizers.variational import START
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import cross_entropy
from tests.optimizers.variational import per_example_gradients
from tests.optimizers.variational import softmax_regression

RNG = np.random.default_rng(1)
WEIGHTS = RNG.normal(size=3)
INPUTS = RNG.normal(size=(8, 3))
TARGETS = INPUTS @ [1.0, -2.0, 0.5] + RNG.normal(size=8)
LOG_STDDEVS = RNG.normal(-1.0, 0.5, size=3)


def set_log_stddevs(objective, values):
    """Moves learned standard deviations, which start at `stddev`."""
    (variable,) = objective.trainable_variables
    values = np.concatenate([np.ravel(v) for v in values])
    moved = values - np.log(objective.stddev)
    variable.assign(moved / objective.learning_rate_multiplier)


def loss_of(model, x=X, y=Y, batch_size=None):
    batch_size = batch_size or len(x)
    logs = model.fit(x, y, batch_size, shuffle=False, verbose=0).history
    return {name: values[0] for name, values in logs.items()}


@pytest.mark.parametrize(
    "estimate, fisher",
    [
        (PerExampleFisher(), lambda g: np.mean(g**2, 0)),
        (SquaredGradient(), lambda g: len(g) * np.mean(g, 0) ** 2),
    ],
    ids=["per example", "of the batch"],
)
def test_linear_regression_equals_its_closed_form(estimate, fisher):
    objective = TaylorVI(
        "diagonal", 0.5, hessian_diagonal=estimate, temperature=0.3
    )
    model = linear_regression(WEIGHTS, objective)
    set_log_stddevs(objective, [LOG_STDDEVS])
    logs = loss_of(model, INPUTS, TARGETS[:, None])
    residuals = INPUTS @ WEIGHTS - TARGETS
    variance = np.exp(2 * LOG_STDDEVS)
    h = fisher(INPUTS * residuals[:, None])
    expected = np.mean(residuals**2) / 2 + np.sum(variance * h) / 2
    divergence = kl([WEIGHTS], [np.exp(LOG_STDDEVS)]) / 8
    assert logs["nll"] == pytest.approx(expected, rel=1e-6)
    assert logs["kl"] == pytest.approx(divergence, rel=1e-6)
    assert logs["loss"] == pytest.approx(expected + 0.3 * divergence, rel=1e-6)


class HessianOfLinearRegression(bdl.extend.HessianDiagonal):
    def __call__(self, forward, values):
        x, _, _ = forward.data
        h = tf.reduce_mean(tf.square(x), 0)[:, None]
        return forward(values), [h]


def test_bound_is_exact_with_the_exact_hessian():
    objective = TaylorVI(
        "diagonal", 0.5, hessian_diagonal=HessianOfLinearRegression()
    )
    model = linear_regression(WEIGHTS, objective)
    set_log_stddevs(objective, [LOG_STDDEVS])
    logs = loss_of(model, INPUTS, TARGETS[:, None], batch_size=1)
    # x w is Gaussian, with this mean and variance.
    errors = INPUTS @ WEIGHTS - TARGETS
    spreads = INPUTS**2 @ np.exp(2 * LOG_STDDEVS)
    bound = np.mean(errors**2 + spreads) / 2
    bound += kl([WEIGHTS], [np.exp(LOG_STDDEVS)]) / 8
    assert logs["loss"] == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["TF", "XLA"])
@pytest.mark.parametrize("size", [None, 3])
def test_gradients_equal_finite_differences(size, jit_compile):
    objective = TaylorVI(
        "diagonal", 0.3, gradient_batch_size=size, temperature=0.5,
        prior=bdl.priors.Normal(2.0),
    )  # fmt: skip
    model = softmax_regression(
        keras.optimizers.SGD(1.0), objective=objective, jit_compile=jit_compile
    )
    weights = start()
    logs = [RNG.normal(-1.0, 0.3, w.shape) for w in weights]
    set_log_stddevs(objective, logs)
    before = [*START, objective.trainable_variables[0].numpy()]

    def loss():
        return taylor(weights, logs, size or N, tau=0.5, prior=2.0)

    assert loss_of(model)["loss"] == pytest.approx(loss(), rel=1e-6)
    of_logs = numerical_gradient(loss, logs)
    expected = [
        *numerical_gradient(loss, weights),
        np.concatenate([g.ravel() for g in of_logs]),
    ]
    after = [*model.get_weights(), objective.trainable_variables[0].numpy()]
    for new, old, gradient in zip(after, before, expected, strict=True):
        np.testing.assert_allclose(old - new, gradient, atol=2e-6)


@pytest.mark.parametrize("size", [4, 64])
def test_xla_splits_a_last_batch_of_another_size_into_groups(size):
    model = linear_regression(
        WEIGHTS,
        TaylorVI("fixed", 0.5, gradient_batch_size=size),
        jit_compile=True,
    )
    logs = loss_of(model, INPUTS, TARGETS[:, None], batch_size=6)
    residuals = INPUTS @ WEIGHTS - TARGETS
    gradients = INPUTS * residuals[:, None]
    # Batches of 6 and 2, with the smaller group of a batch first.
    groups = [[0, 1], [2, 3, 4, 5]] if size == 4 else [[0, 1, 2, 3, 4, 5]]
    expected = np.mean(residuals**2) / 2
    for rows in (*groups, [6, 7]):
        g = gradients[rows].mean(0)
        expected += len(rows) / 8 * 0.5**2 * len(rows) * np.sum(g**2) / 2
    assert logs["nll"] == pytest.approx(expected, rel=1e-6)


# Their gradients are right without our doing, and the gradients of those not.
@pytest.mark.parametrize(
    "normalization",
    [
        keras.layers.BatchNormalization,
        keras.layers.LayerNormalization,
        lambda: keras.layers.GroupNormalization(groups=3),
    ],
    ids=["batch", "layer", "group"],
)
def test_gradients_through_normalization_equal_finite_differences(
    normalization,
):
    model = bdl.Sequential(
        [
            keras.Input((6, 6, 1)),
            keras.layers.Conv2D(3, 3, activation="softplus"),
            normalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    objective = TaylorVI("scalar", 0.3, learning_rate_multiplier=1.0)
    model.compile(
        keras.optimizers.SGD(1.0), cross_entropy(), objective=objective
    )
    x = np.random.default_rng(1).normal(size=(12, 6, 6, 1)).astype("float32")
    trained = [*model.trainable_variables, *objective.trainable_variables]
    moments = tf.nn.moments
    first = [v.numpy() for v in trained]

    def loss():
        return loss_of(model, x)["loss"]

    loss()
    gradients = [a - v.numpy() for a, v in zip(first, trained, strict=True)]
    for moved, gradient in enumerate(gradients):
        direction = np.random.default_rng(0).normal(size=gradient.shape)
        losses = []
        for step in (0.003, -0.003):
            for i, (v, a) in enumerate(zip(trained, first, strict=True)):
                v.assign(a + step * direction if i == moved else a)
            losses.append(loss())
        slope = (losses[0] - losses[1]) / 0.006
        expected = np.sum(gradient * direction)
        assert slope == pytest.approx(expected, rel=3e-3, abs=2e-3)
    assert tf.nn.moments is moments  # as before


def test_fixed_variance_adds_a_quarter_of_the_rate_times_the_squared_norm():
    eta = 0.8
    objective = TaylorVI(
        "fixed", learning_rate_equivalent=eta, gradient_batch_size=N
    )
    model = softmax_regression(keras.optimizers.SGD(0.0), objective=objective)
    gradients = [g.mean(0) for g in per_example_gradients(*start())]
    added = eta / 4 * sum(np.sum(g**2) for g in gradients)
    logs = loss_of(model)
    assert logs["nll"] == pytest.approx(nll(*start()) + added, rel=1e-6)
    variance = objective.posterior(model).get_state()["variance"]
    for v in variance:
        np.testing.assert_allclose(v, eta / (2 * N), rtol=1e-6)


def test_fixed_standard_deviation_is_0_03_by_default():
    objective = TaylorVI("fixed")
    model = softmax_regression(keras.optimizers.SGD(0.0), objective=objective)
    for v in objective.posterior(model).get_state()["variance"]:
        np.testing.assert_allclose(v, 0.03**2, rtol=1e-6)


def test_groups_give_one_regularizer_for_any_batch_and_replicas(mirrored):
    expected = nll(*start()) + 0.25 / 2 * sum(
        np.sum(h) for h in squares(start(), 2)
    )
    steps = []
    for size, strategy in ((12, None), (4, None), (2, None), (12, mirrored)):
        with strategy.scope() if strategy else tf.init_scope():
            model = softmax_regression(
                keras.optimizers.SGD(0.0),
                objective=TaylorVI("fixed", 0.5, gradient_batch_size=2),
            )
        logs = loss_of(model, batch_size=size)
        assert logs["nll"] == pytest.approx(expected, rel=1e-6)
        if size == 12:
            model.optimizer.learning_rate = 1.0
            loss_of(model)
            steps.append(model.get_weights())
    for one, other in zip(*steps, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_groups_take_labels_with_an_axis_of_size_one():
    found = []
    for labels in (Y, Y[:, None]):
        model = softmax_regression(
            keras.optimizers.SGD(0.0),
            objective=TaylorVI("fixed", 0.5, gradient_batch_size=2),
        )
        # The last batch is another one: the sizes of groups are tensors.
        found.append(loss_of(model, y=labels, batch_size=5)["nll"])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_a_smaller_first_group_counts_less():
    x, y, weights = X[:11], Y[:11], start()
    model = softmax_regression(
        keras.optimizers.SGD(0.0),
        objective=TaylorVI("fixed", 0.5, gradient_batch_size=4),
        metrics=["accuracy"],
    )
    expected = nll(*weights, x, y)
    for part in (slice(0, 3), slice(3, 7), slice(7, 11)):
        size = part.stop - part.start
        h = squares(weights, size, x[part], y[part])
        expected += size / 11 * 0.25 / 2 * sum(np.sum(one) for one in h)
    logs = loss_of(model, x, y)
    assert logs["nll"] == pytest.approx(expected, rel=1e-6)
    right = np.argmax(x @ weights[0] + weights[1], 1) == y
    assert logs["accuracy"] == pytest.approx(right.mean())


def test_groups_are_normalized_like_batches_and_leave_statistics():
    def train(batch_size, size):
        layers = [keras.layers.BatchNormalization(momentum=0.5)]
        objective = TaylorVI("fixed", 0.5, gradient_batch_size=size)
        model = bdl.Sequential(
            [keras.Input((4,)), *layers, keras.layers.Dense(3)]
        )
        model.layers[1].set_weights(START)
        model.compile(
            keras.optimizers.SGD(0.0), cross_entropy(), objective=objective
        )
        logs = loss_of(model, batch_size=batch_size)
        return logs["loss"], model.non_trainable_variables[0].numpy()

    loss, mean = train(batch_size=4, size=None)
    by_groups = train(batch_size=12, size=4)
    assert by_groups[0] == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(by_groups[1], mean, rtol=1e-5)
    assert train(batch_size=12, size=None)[0] != pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize("covariance", ["scalar", "diagonal"])
def test_learned_variances_converge_to_the_stated_optimum(covariance):
    objective = TaylorVI(
        covariance, 0.1, prior=bdl.priors.Normal(0.7), temperature=0.4,
        dataset_size=N,
    )  # fmt: skip
    model = softmax_regression(
        keras.optimizers.Adam(0.05), objective=objective,
        steps_per_execution=200,
    )  # fmt: skip
    # Both move, and come to rest together.
    data = tf.data.Dataset.from_tensors((X, Y)).repeat()
    model.fit(data, steps_per_epoch=1000, shuffle=False, verbose=0)
    h = squares([np.float64(w) for w in model.get_weights()], N)
    if covariance == "scalar":
        h = [np.mean(one) for one in h]
    variance = objective.posterior(model).get_state()["variance"]
    for v, one in zip(variance, h, strict=True):
        expected = 1 / (1 / 0.7**2 + N * one / 0.4)
        np.testing.assert_allclose(v, np.broadcast_to(expected, v.shape), 0.02)


def test_per_example_fisher_is_the_square_of_groups_of_one():
    def train(**kwargs):
        model = softmax_regression(
            keras.optimizers.SGD(1.0),
            objective=TaylorVI("fixed", 0.5, **kwargs),
        )
        return loss_of(model)["loss"], model.get_weights()

    loss, weights = train(hessian_diagonal=PerExampleFisher())
    of_one = train(gradient_batch_size=1)
    assert loss == pytest.approx(of_one[0], rel=1e-6)
    for a, b in zip(weights, of_one[1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_per_example_fisher_is_the_same_on_replicas(mirrored):
    def train(strategy):
        with strategy.scope():
            objective = TaylorVI(
                "fixed", 0.5, hessian_diagonal=PerExampleFisher()
            )
            model = softmax_regression(
                keras.optimizers.SGD(1.0), objective=objective
            )
        return loss_of(model)["loss"], model.get_weights()

    loss, weights = train(tf.distribute.get_strategy())
    shared = train(mirrored)
    assert shared[0] == pytest.approx(loss, rel=1e-6)
    for a, b in zip(shared[1], weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_hutchinson_averages_to_the_diagonal_of_the_hessian():
    weights = start()
    logits = X @ weights[0] + weights[1]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    of_logits = p * (1 - p)
    hessian = np.sum(np.mean(X[:, :, None] ** 2 * of_logits[:, None], 0))
    hessian += np.sum(np.mean(of_logits, 0))
    objective = TaylorVI(
        "fixed", 0.5, hessian_diagonal=Hutchinson(probes=2, seed=1)
    )
    model = softmax_regression(keras.optimizers.SGD(0.0), objective=objective)
    model.make_train_function()
    objective.dataset_size.count(N)
    data = iter(tf.data.Dataset.from_tensors((X, Y)).repeat())
    found = []
    for _ in range(300):
        model.reset_metrics()
        model.train_function(data)
        found.append(float(model.metrics[-2].result()) - nll(*weights))
    error = np.std(found) / np.sqrt(len(found))
    assert np.std(found) > 0
    assert abs(np.mean(found) - 0.25 / 2 * hessian) < 5 * error
