import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._random._noise import EVALUATION
from keras_bdl._random._noise import TRAINING
from tests.helpers import cross_entropy
from tests.optimizers.variational import START
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import assert_same
from tests.optimizers.variational import noise_of_next_step
from tests.optimizers.variational import per_example_gradients
from tests.optimizers.variational import softmax_regression

N = len(X)


class Transcription:
    """The equations in NumPy, for one step after the other."""

    def __init__(self, rate=0.05, n=N, delta=2.0, beta_1=0.9, beta_2=0.8,
                 rho=1.0, damping=0.01, start=0.3):  # fmt: skip
        self.rate, self.n, self.delta = rate, rho * n, delta
        self.beta_1, self.beta_2 = beta_1, beta_2
        self.damping = damping
        self.mean = [np.float64(w) for w in START]
        self.m = [np.zeros_like(w) for w in self.mean]
        self.s = [np.full_like(w, start) for w in self.mean]

    def draw(self, noise, tau=1.0):
        delta = tau * self.delta / self.n
        return [
            mu + eps * np.sqrt(tau / (self.n * (s + delta)))
            for mu, eps, s in zip(self.mean, noise, self.s, strict=True)
        ]

    def step(self, gradients, squares, tau=1.0, due=True):
        delta = tau * self.delta / self.n
        for i, (g, h) in enumerate(zip(gradients, squares, strict=True)):
            self.m[i] = self.beta_1 * self.m[i] + g + delta * self.mean[i]
            if due:
                self.s[i] = self.beta_2 * self.s[i] + (1 - self.beta_2) * h
            curvature = self.s[i] + delta + self.damping
            self.mean[i] = self.mean[i] - self.rate * self.m[i] / curvature


def moments(draws, x=X, y=Y):
    """Gradients and mean squares over all examples and draws."""
    gradients = [per_example_gradients(*w, x, y) for w in draws]
    return (
        [np.mean(g, (0, 1)) for g in zip(*gradients, strict=True)],
        [np.mean(np.square(g), (0, 1)) for g in zip(*gradients, strict=True)],
    )


def vogn(**kwargs):
    defaults = {
        "learning_rate": 0.05,
        "dataset_size": N,
        "prior_precision": 2.0,
        "beta_2": 0.8,
        "damping": 0.01,
        "initial_curvature": 0.3,
        "rescale_learning_rate": False,
        "seed": 7,
    }
    return bdl.VOGN(**{**defaults, **kwargs})


def check_steps(
    optimizer, expected, steps=3, draws=1, taus=(1.0,) * 4, every=1, **compile
):
    """Trains on the whole batch and compares means and state each time."""
    model = softmax_regression(
        optimizer, **{"run_eagerly": True, **compile}, train_samples=draws
    )
    for step in range(steps):
        noises = noise_of_next_step(model, draws)
        looked_at = [expected.draw(eps, taus[step]) for eps in noises]
        model.train_on_batch(X, Y)
        expected.step(*moments(looked_at), taus[step], step % every == 0)
        assert_same(model.trainable_variables, expected.mean)
        assert_same(optimizer._momenta, expected.m)
        assert_same(optimizer._curvatures, expected.s)
    return model


def test_one_step_equals_the_equations():
    check_steps(vogn(), Transcription(), steps=1)


def test_compiled_steps_equal_the_equations():
    check_steps(vogn(), Transcription(), run_eagerly=False, jit_compile=True)


@pytest.mark.parametrize("beta_1", [0.0, 0.95])
def test_momentum_has_no_factor_one_minus_beta(beta_1):
    check_steps(vogn(beta_1=beta_1), Transcription(beta_1=beta_1))


def test_temperature_may_be_a_schedule():
    ramp = bdl.schedules.LinearRamp(0.1, 1.0, end_step=3)
    check_steps(
        vogn(temperature=ramp), Transcription(), 4, taus=(0.1, 0.4, 0.7, 1.0)
    )


def test_augmentation_factor_multiplies_the_examples():
    check_steps(vogn(augmentation_factor=5.0), Transcription(rho=5.0))


def test_damping_is_in_the_step_and_not_in_the_posterior():
    optimizer = vogn(damping=0.5)
    expected = Transcription(damping=0.5)
    model = check_steps(optimizer, expected)
    state = optimizer.posterior(model).get_state()
    assert_same(state["variance"], [1 / (N * s + 2.0) for s in expected.s])
    assert_same(state["mean"], expected.mean)


def test_curvature_is_constant_between_its_updates():
    check_steps(vogn(curvature_every=2), Transcription(), every=2)


def test_gradients_and_squares_are_means_over_samples():
    check_steps(vogn(), Transcription(), draws=3)


def test_ogn_is_vogn_at_the_means():
    optimizer = bdl.OGN(
        0.05,
        N,
        prior_precision=2.0,
        beta_2=0.8,
        damping=0.01,
        initial_curvature=0.3,
        rescale_learning_rate=False,
    )
    model = check_steps(optimizer, Transcription())
    assert not any(np.any(e) for e in noise_of_next_step(model)[0])
    assert not optimizer.posterior(model).is_point


def test_first_batch_sets_the_curvature_at_the_means():
    optimizer = vogn(initial_curvature="first_batch")
    model = softmax_regression(optimizer)
    gradients, squares = moments([[np.float64(w) for w in START]])
    expected = Transcription()
    expected.s = squares
    model.train_on_batch(X, Y)
    expected.step(gradients, squares)
    assert_same(optimizer._curvatures, expected.s)
    assert_same(model.trainable_variables, expected.mean)

    looked_at = [expected.draw(eps) for eps in noise_of_next_step(model)]
    model.train_on_batch(X, Y)
    expected.step(*moments(looked_at))
    assert_same(optimizer._curvatures, expected.s)
    assert_same(model.trainable_variables, expected.mean)


def test_curvature_of_one_example_is_its_squared_gradient():
    optimizer = vogn(initial_curvature="first_batch", beta_1=0.0)
    model = bdl.Sequential(
        [
            keras.Input((5, 5, 1)),
            keras.layers.Conv2D(2, 3, activation="tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    means = [w * 1 for w in model.get_weights()]
    model.compile(optimizer, cross_entropy(), run_eagerly=True)
    x = np.random.default_rng(1).normal(size=(1, 5, 5, 1))
    model.train_on_batch(x, Y[:1])
    for m, s, mean in zip(
        optimizer._momenta, optimizer._curvatures, means, strict=True
    ):
        gradient = np.float64(m) - 2.0 / N * mean
        np.testing.assert_allclose(s, gradient**2, atol=1e-6)


def test_two_replicas_draw_differently_and_stay_equal(mirrored):
    with mirrored.scope():
        optimizer = vogn(initial_curvature=1e-3)
        model = softmax_regression(optimizer)
        variables = optimizer.prepare(model)

    @tf.function
    def draws_of_replicas():
        draw = mirrored.run(lambda: optimizer.draw(variables, TRAINING, 0))
        return [mirrored.experimental_local_results(w) for w in draw]

    expected = Transcription(start=1e-3)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(12)
    for _ in range(2):
        draws = [
            [np.float64(w) for w in of_one]
            for of_one in zip(*draws_of_replicas(), strict=True)
        ]
        assert np.abs(draws[0][0] - draws[1][0]).min() > 0
        halves = [
            moments([draw], x, y)
            for draw, x, y in zip(
                draws, np.split(X, 2), np.split(Y, 2), strict=True
            )
        ]
        means = [
            [np.mean(pair, 0) for pair in zip(*of_halves, strict=True)]
            for of_halves in zip(*halves, strict=True)
        ]
        model.fit(data, shuffle=False, verbose=0)
        expected.step(*means)
    assert_same(optimizer._curvatures, expected.s)
    assert_same(model.trainable_variables, expected.mean)
    for v in [*variables, *optimizer._momenta, *optimizer._curvatures]:
        first, second = mirrored.experimental_local_results(v.value)
        np.testing.assert_array_equal(first, second)


def test_each_step_draws_new_samples():
    model = softmax_regression(vogn())
    first = noise_of_next_step(model)[0][0]
    model.train_on_batch(X, Y)
    assert np.abs(noise_of_next_step(model)[0][0] - first).min() > 0


def test_squares_are_unscaled_and_a_skipped_step_changes_nothing(
    half_precision,
):
    model = softmax_regression(vogn(), train_samples=2)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    inner = model.optimizer.inner_optimizer
    expected = Transcription()
    variables = inner.prepare(model)
    looked_at = [
        [np.float64(w) for w in inner.draw(variables, TRAINING, k)]
        for k in range(2)
    ]
    model.train_on_batch(X, Y)
    expected.step(*moments(looked_at))
    for a, e in zip(
        [*inner._curvatures, *inner._momenta],
        [*expected.s, *expected.m],
        strict=True,
    ):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-2 * np.abs(e).max())

    scale = model.optimizer.dynamic_scale
    scale.assign(2.0**30)
    state = [v.numpy() for v in [*model.weights, *inner.variables]]
    model.train_on_batch(X, Y)
    assert float(scale) == 2.0**29
    for variable, before in zip(
        [*model.weights, *inner.variables], state, strict=True
    ):
        np.testing.assert_array_equal(variable, before)


def test_a_sample_in_evaluation_is_one_function_for_all_batches():
    optimizer = vogn(initial_curvature=1e-3)
    model = softmax_regression(optimizer, samples=2)
    optimizer.iterations.assign(1)  # as if it had learned this curvature
    whole = model.predict(X, batch_size=12, verbose=0)
    np.testing.assert_allclose(
        model.predict(X, batch_size=5, verbose=0), whole, rtol=1e-5
    )
    variables = optimizer.prepare(model)
    draws = [optimizer.draw(variables, EVALUATION, k) for k in range(2)]
    probabilities = [tf.nn.softmax(X @ kernel + bias) for kernel, bias in draws]
    assert np.abs(probabilities[0] - probabilities[1]).max() > 0.1
    np.testing.assert_allclose(
        tf.nn.softmax(whole), np.mean(probabilities, 0), rtol=1e-4
    )
    loss = model.evaluate(X, Y, verbose=0)
    mean = np.mean(probabilities, 0)[np.arange(12), Y]
    assert loss == pytest.approx(-np.log(mean).mean(), rel=1e-4)


def test_predict_takes_the_posterior_of_the_optimizer():
    model = softmax_regression(vogn(initial_curvature=1e-3))
    model.optimizer.iterations.assign(1)  # as if it had learned this curvature
    p = bdl.predict(model, X, samples=3, verbose=0)
    q = bdl.predict(
        model, X, model.optimizer.posterior(model), samples=3, verbose=0
    )
    np.testing.assert_array_equal(p.mean, q.mean)
    assert p.mutual_information.max() > 0.01


def test_excluded_weights_have_neither_prior_nor_noise():
    optimizer = vogn(exclude_from_inference=["bias"])
    model = softmax_regression(optimizer, run_eagerly=True)
    noises = noise_of_next_step(model)
    assert not noises[0][1].any()
    expected = Transcription()
    gradients, squares = moments([expected.draw(noises[0])])
    gradients[1] -= expected.delta / N * START[1]  # of the prior
    model.train_on_batch(X, Y)
    expected.step(gradients, squares)
    assert_same(optimizer._momenta, expected.m)
    rate, m, s = 0.05, expected.m[1], expected.s[1]
    assert_same(model.weights[1:], [START[1] - rate * m / (s + 0.01)])
    variance = optimizer.posterior(model).get_state()["variance"]
    assert variance[0].min() > 0
    assert not variance[1].any()


def test_batch_normalization_is_excluded_and_needs_damping():
    def model(optimizer):
        normalization = keras.layers.BatchNormalization(name="bn")
        made = bdl.Sequential(
            [keras.Input((4,)), normalization, keras.layers.Dense(3)]
        )
        made.compile(optimizer, cross_entropy())
        return made

    optimizer = vogn()
    trained = model(optimizer)
    trained.fit(X, Y, verbose=0)
    variances = optimizer.posterior(trained).get_state()["variance"]
    assert [v.any() for v in variances] == [False, False, True, True]
    bdl.predict(trained, X, samples=2, verbose=0)  # statistics fit: no warning
    with pytest.raises(ValueError, match=r"`damping`.*bn/gamma"):
        model(vogn(damping=0.0)).fit(X, Y, verbose=0)


def one_step(layers, model_class=bdl.Sequential, loss=None, **kwargs):
    model = model_class([keras.Input((4,)), *layers])
    model.compile(vogn(**kwargs), loss or cross_entropy())
    model.train_on_batch(X, Y)


def test_regularizer_is_a_second_prior_and_warns():
    layer = keras.layers.Dense(3, kernel_regularizer="l2")
    with pytest.warns(UserWarning, match=r"second prior.*kernel"):
        one_step([layer])
    one_step([layer], exclude_from_inference=["kernel"])


def test_misspelled_exclusion_is_refused():
    with pytest.raises(ValueError, match="BatchNorm'"):
        one_step([keras.layers.Dense(3)], exclude_from_inference="BatchNorm")


def test_unknown_initial_curvature_is_refused():
    with pytest.raises(ValueError, match="`initial_curvature` must be"):
        bdl.VOGN(initial_curvature="zeros")
