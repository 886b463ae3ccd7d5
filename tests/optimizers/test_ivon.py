import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.optimizers.variational import START
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import assert_same
from tests.optimizers.variational import noise_of_next_step
from tests.optimizers.variational import per_example_gradients
from tests.optimizers.variational import softmax_regression

N = len(X)
DELTA, BETA_1, BETA_2, RATE, START_CURVATURE = 2.0, 0.9, 0.8, 0.05, 0.3


class Transcription:
    """The equations in NumPy, for one step after the other."""

    def __init__(self, n=N, rescale=True, clip=np.inf):
        self.n, self.rescale, self.clip = n, rescale, clip
        self.mean = [np.float64(w) for w in START]
        self.m = [np.zeros_like(w) for w in self.mean]
        self.h = [np.full_like(w, START_CURVATURE) for w in self.mean]
        self.steps = 0

    def step(self, noises, tau=1.0):
        delta = tau * DELTA / self.n
        stddev = [np.sqrt(tau / (self.n * (h + delta))) for h in self.h]
        gradients, estimates = [], []
        for eps in noises:
            moves = [s * e for s, e in zip(stddev, eps, strict=True)]
            w = [mu + move for mu, move in zip(self.mean, moves, strict=True)]
            g = [part.mean(0) for part in per_example_gradients(*w)]
            gradients.append(g)
            estimates.append(
                [a * b / s**2 for a, b, s in zip(g, moves, stddev, strict=True)]
            )
        self.steps += 1
        for i, h in enumerate(self.h):
            g = np.mean([g[i] for g in gradients], 0)
            h_hat = np.mean([e[i] for e in estimates], 0)
            self.h[i] = (
                BETA_2 * h
                + (1 - BETA_2) * h_hat
                + (1 - BETA_2) ** 2 * (h - h_hat) ** 2 / (2 * (h + delta))
            )
            self.m[i] = BETA_1 * self.m[i] + (1 - BETA_1) * g
            m_hat = self.m[i] / (1 - BETA_1**self.steps)
            move = (m_hat + delta * self.mean[i]) / (self.h[i] + delta)
            rate = RATE
            if self.rescale:
                rate *= (START_CURVATURE + delta) / (1 - BETA_1)
                rate *= 1 - BETA_1**self.steps
            move = np.clip(move, -self.clip, self.clip)
            self.mean[i] = self.mean[i] - rate * move


def ivon(**kwargs):
    defaults = {
        "learning_rate": RATE,
        "dataset_size": N,
        "prior_precision": DELTA,
        "beta_1": BETA_1,
        "beta_2": BETA_2,
        "initial_curvature": START_CURVATURE,
        "seed": 7,
    }
    return bdl.IVON(**{**defaults, **kwargs})


def check_steps(optimizer, expected, draws=1, taus=(1.0,) * 3, **compile):
    """Trains on the whole batch and compares means and state each time."""
    model = softmax_regression(
        optimizer, **{"run_eagerly": True, **compile}, train_samples=draws
    )
    for tau in taus:
        noises = noise_of_next_step(model, draws)
        model.train_on_batch(X, Y)
        expected.step(noises, tau)
        assert_same(optimizer._curvatures, expected.h)
        assert_same(optimizer._momenta, expected.m)
        assert_same(model.trainable_variables, expected.mean)
    return model


def test_one_step_equals_the_equations():
    check_steps(ivon(), Transcription(), taus=[1.0])


def test_compiled_steps_equal_the_equations():
    check_steps(ivon(), Transcription(), run_eagerly=False, jit_compile=True)


def test_temperature_may_be_a_schedule():
    ramp = bdl.schedules.LinearRamp(0.1, 1.0, end_step=3)
    check_steps(ivon(temperature=ramp), Transcription(), taus=(0.1, 0.4, 0.7))


def test_augmentation_factor_multiplies_the_examples():
    check_steps(ivon(augmentation_factor=5.0), Transcription(5 * N))


def test_gradients_and_curvatures_are_means_over_samples():
    check_steps(ivon(), Transcription(), draws=3)


def test_learning_rate_is_not_rescaled_if_the_user_says_so():
    check_steps(ivon(rescale_learning_rate=False), Transcription(rescale=False))


def test_steps_are_clipped_before_the_learning_rate():
    optimizer, unclipped = ivon(clip_radius=0.5), Transcription()
    expected = Transcription(clip=0.5)
    model = check_steps(optimizer, expected, taus=[1.0])
    model = softmax_regression(ivon(), run_eagerly=True)
    unclipped.step(noise_of_next_step(model))
    assert np.abs(unclipped.mean[0] - expected.mean[0]).max() > 0.01


def test_posterior_has_the_variances_of_training():
    optimizer, expected = ivon(), Transcription()
    model = check_steps(optimizer, expected)
    state = optimizer.posterior(model).get_state()
    assert_same(state["variance"], [1 / (N * h + DELTA) for h in expected.h])
    assert_same(state["mean"], expected.mean)


def test_with_little_noise_the_first_steps_are_those_of_sgd_with_momentum():
    # The curvature stays what it is, far above that of the loss.
    little = {"prior_precision": 1e-6, "initial_curvature": 1e6}
    little["beta_2"] = 1 - 1e-7
    models = [
        softmax_regression(optimizer)
        for optimizer in (
            ivon(**little),
            keras.optimizers.SGD(RATE, momentum=BETA_1),
        )
    ]
    for _ in range(20):
        for model in models:
            model.train_on_batch(X, Y)
    ours, of_sgd = (model.get_weights() for model in models)
    for a, b, start in zip(ours, of_sgd, START, strict=True):
        np.testing.assert_allclose(a - start, b - start, rtol=0.01, atol=1e-3)


def test_excluded_weights_move_as_in_sgd_with_momentum():
    optimizer = ivon(exclude_from_inference=["bias"])
    model = softmax_regression(optimizer, run_eagerly=True)
    (eps, none), expected = noise_of_next_step(model)[0], Transcription()
    assert not none.any()
    stddev = 1 / np.sqrt(N * START_CURVATURE + DELTA)
    g = per_example_gradients(expected.mean[0] + stddev * eps, START[1])
    model.train_on_batch(X, Y)
    assert_same(model.weights[1:], [START[1] - RATE * g[1].mean(0)])
    assert not optimizer.posterior(model).get_state()["variance"][1].any()


def test_curvature_is_unscaled_and_a_skipped_step_changes_nothing(
    half_precision,
):
    model = softmax_regression(ivon())
    inner = model.optimizer.inner_optimizer
    expected = Transcription()
    expected.step(noise_of_next_step(model))
    model.train_on_batch(X, Y)
    for a, e in zip(
        [*inner._curvatures, *inner._momenta],
        [*expected.h, *expected.m],
        strict=True,
    ):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-2 * np.abs(e).max())

    model.optimizer.dynamic_scale.assign(2.0**30)
    variables = [*model.weights, *inner.variables]
    state = [v.numpy() for v in variables]
    model.train_on_batch(X, Y)
    for variable, before in zip(variables, state, strict=True):
        np.testing.assert_array_equal(variable, before)


def test_weights_may_be_used_outside_of_their_layer():
    class Tied(bdl.Model):
        def __init__(self):
            super().__init__()
            self.down = keras.layers.Dense(2, use_bias=False)

        def call(self, x):
            return tf.matmul(self.down(x), self.down.kernel, transpose_b=True)

    model = Tied()
    model.compile(ivon(), "mse", run_eagerly=True)
    model(X)
    before = model.get_weights()[0]
    eps = noise_of_next_step(model)[0][0]
    w = before + eps / np.sqrt(N * START_CURVATURE + DELTA)
    error = 2 * (X @ w @ w.T - X) / X.size
    gradient = X.T @ error @ w + error.T @ X @ w
    model.train_on_batch(X, X)
    assert_same(model.optimizer._momenta, [(1 - BETA_1) * gradient])


def test_initial_curvature_of_zero_is_refused():
    with pytest.raises(ValueError, match="`initial_curvature` must be"):
        bdl.IVON(initial_curvature=0.0)
