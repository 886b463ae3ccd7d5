import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from scipy.linalg import sqrtm
from sklearn.datasets import load_digits

import keras_bdl as bdl
from keras_bdl._random._noise import TRAINING
from keras_bdl._random._noise import normal_numbers
from keras_bdl._random._noise import split_numbers
from tests.helpers import assert_equal
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy
from tests.optimizers.variational import START
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import assert_same
from tests.optimizers.variational import per_example_gradients
from tests.optimizers.variational import softmax_regression

N = len(X)


def noisy_kfac(**kwargs):
    defaults = {
        "learning_rate": 0.05,
        "dataset_size": N,
        "prior_precision": 2.0,
        "beta_2": 0.8,
        "damping": 0.1,
        "initial_curvature": 0.09,
        "rescale_learning_rate": False,
        "curvature_every": 1,
        "update_every": 1,
        "seed": 7,
    }
    return bdl.NoisyKFAC(**{**defaults, **kwargs})


class Transcription:
    """The equations in NumPy, for one step after the other."""

    def __init__(self, rate=0.05, n=N, delta=2.0, beta_1=0.9, beta_2=0.8,
                 rho=1.0, damping=0.1, start=0.09):  # fmt: skip
        self.rate, self.n, self.delta = rate, rho * n, delta
        self.beta_1, self.beta_2, self.damping = beta_1, beta_2, damping
        self.mean = np.float64(np.vstack(START))
        self.m = np.zeros((5, 3))
        self.factors = [np.eye(n) * start**0.5 for n in (5, 3)]
        self.decomposed = list(self.factors)

    def draw(self, noise, tau=1.0):
        """The symmetric root of the covariance, times the noise."""
        delta = tau * self.delta / self.n
        precision = np.kron(*self.decomposed) + delta * np.eye(15)
        root = np.linalg.inv(sqrtm(precision).real)
        error = np.sqrt(tau / self.n) * (root @ noise.ravel()).reshape(5, 3)
        draw = self.mean + error
        return draw[:-1], draw[-1]

    def step(self, gradient, factors, tau=1.0, due=True, decompose=True):
        delta = tau * self.delta / self.n
        self.m = self.beta_1 * self.m + gradient + delta * self.mean
        if due:
            self.factors = [
                self.beta_2 * old + (1 - self.beta_2) * new
                for old, new in zip(self.factors, factors, strict=True)
            ]
        if decompose:
            self.decomposed = list(self.factors)
        a, s = self.decomposed
        root = np.sqrt(delta + self.damping)
        pi = np.sqrt((np.trace(a) / 5) / (np.trace(s) / 3))
        step = np.linalg.solve(a + pi * root * np.eye(5), self.m)
        step = np.linalg.solve(s + root / pi * np.eye(3), step.T).T
        self.mean = self.mean - self.rate * step


def moments(draws, x=X, y=Y):
    """Mean gradient `(5, 3)`, A and S over all examples and draws."""
    a = np.hstack([x, np.ones((len(x), 1))])
    gradients, factors = [], []
    for draw in draws:
        kernels, biases = per_example_gradients(*draw, x, y)
        gradients.append(np.vstack([kernels.mean(0), biases.mean(0)[None]]))
        factors.append((a.T @ a / len(x), biases.T @ biases / len(x)))
    return np.mean(gradients, 0), [np.mean(f, 0) for f in zip(*factors)]  # noqa: B905


def noise_of_next_step(optimizer, draws):
    return [
        np.vstack(
            split_numbers(
                normal_numbers(optimizer.bits(15, TRAINING, k)),
                [(4, 3), (1, 3)],
            )
        )
        for k in range(draws)
    ]


def check_state(optimizer, model, expected):
    (matrix,) = optimizer._matrices
    assert_same([np.vstack(model.get_weights())], [expected.mean])
    assert_same([np.vstack(optimizer._momenta)], [expected.m])
    assert_same(matrix.factors, expected.factors)


def check_steps(
    optimizer, expected, steps=3, draws=1, taus=(1.0,) * 8, every=1,
    decomposes=range(9), **compile,
):  # fmt: skip
    """Trains on the whole batch and compares means and state each time."""
    model = softmax_regression(
        optimizer, **{"run_eagerly": True, **compile}, train_samples=draws
    )
    optimizer.prepare(model)
    for step in range(steps):
        noises = noise_of_next_step(optimizer, draws)
        looked_at = [expected.draw(e, taus[step]) for e in noises]
        model.train_on_batch(X, Y)
        expected.step(
            *moments(looked_at),
            taus[step],
            step % every == 0,
            step in decomposes,
        )
        check_state(optimizer, model, expected)
    return model


def test_one_step_equals_the_equations():
    check_steps(noisy_kfac(), Transcription(), steps=1)


def test_compiled_steps_equal_the_equations():
    check_steps(
        noisy_kfac(), Transcription(), run_eagerly=False, jit_compile=True
    )


@pytest.mark.parametrize("beta_1", [0.0, 0.95])
def test_momentum_has_no_factor_one_minus_beta(beta_1):
    check_steps(noisy_kfac(beta_1=beta_1), Transcription(beta_1=beta_1))


def test_temperature_may_be_a_schedule():
    ramp = bdl.schedules.LinearRamp(0.1, 1.0, end_step=3)
    taus = (0.1, 0.4, 0.7, 1.0)
    check_steps(noisy_kfac(temperature=ramp), Transcription(), 4, taus=taus)


def test_augmentation_factor_multiplies_the_examples():
    check_steps(noisy_kfac(augmentation_factor=5.0), Transcription(rho=5.0))


def test_factors_are_constant_between_their_updates():
    check_steps(noisy_kfac(curvature_every=2), Transcription(), every=2)


def test_decompositions_are_constant_between_their_updates():
    # At first, there is one in each step.
    due = (0, 1, 2, 3, 6)
    check_steps(noisy_kfac(update_every=3), Transcription(), 8, decomposes=due)


@pytest.mark.parametrize("size, decomposes", [(1.0, False), (50.0, True)])
def test_a_factor_that_has_grown_is_decomposed_at_once(size, decomposes):
    optimizer = noisy_kfac(update_every=3, beta_2=0.9)
    model = softmax_regression(optimizer)
    for _ in range(4):
        model.train_on_batch(X, Y)
    model.train_on_batch(size * X, Y)
    (matrix,) = optimizer._matrices
    for factor, values in zip(matrix.factors, matrix._values, strict=True):
        ratio = np.trace(factor) / np.sum(values)
        assert (abs(ratio - 1) < 1e-5) == decomposes


@pytest.mark.parametrize("cls", [bdl.NoisyKFAC, bdl.KFAC])
def test_two_regressions_at_a_large_learning_rate_stay_finite(cls):
    # An outdated curvature makes steps longer, and these the curvature larger.
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    inputs = keras.Input((64,))
    hidden = keras.layers.Dense(64, activation="relu")(inputs)
    outputs = [keras.layers.Dense(1, name=name)(hidden) for name in "ab"]
    model = bdl.Model(inputs, outputs)
    model.compile(cls(1e-2), loss=["mse", "mse"])
    targets = [y[:, None], y[:, None] % 2]
    losses = model.fit(x, targets, epochs=3, verbose=0).history["loss"]
    guess = np.var(y) + np.var(y % 2)
    assert losses[-1] < guess + np.mean(y) ** 2  # at least better than zeros


def test_a_training_that_diverges_shows_nan():
    model = softmax_regression(noisy_kfac())
    assert np.isnan(model.train_on_batch(np.full_like(X, np.inf), Y))
    assert np.isnan(model.train_on_batch(X, Y))


def test_gradients_and_factors_are_means_over_samples():
    check_steps(noisy_kfac(), Transcription(), draws=3)


def test_damping_is_in_the_step_and_not_in_the_posterior():
    optimizer = noisy_kfac(damping=0.5)
    expected = Transcription(damping=0.5)
    model = check_steps(optimizer, expected)
    (matrix,) = optimizer.posterior(model).matrices
    q = np.kron(np.float64(matrix.inputs), np.float64(matrix.outputs))
    precision = N * np.kron(*expected.factors) + 2.0 * np.eye(15)
    np.testing.assert_allclose(
        (q * matrix.values.ravel()) @ q.T,
        np.linalg.inv(precision),
        atol=1e-6,
    )
    assert (matrix.kernel, matrix.bias) == (0, 1)


def test_kfac_is_noisy_kfac_at_the_means():
    optimizer = bdl.KFAC(
        0.05,
        N,
        prior_precision=2.0,
        beta_2=0.8,
        damping=0.1,
        initial_curvature=0.09,
        rescale_learning_rate=False,
        curvature_every=1,
        update_every=1,
    )
    model = softmax_regression(optimizer, run_eagerly=True)
    expected = Transcription()
    for _ in range(3):
        mean = expected.mean
        model.train_on_batch(X, Y)
        expected.step(*moments([(mean[:-1], mean[-1])]))
        check_state(optimizer, model, expected)
    assert not optimizer.posterior(model).is_point


def test_first_batch_sets_the_factors_at_the_means():
    optimizer = noisy_kfac(initial_curvature="first_batch")
    model = softmax_regression(optimizer)
    expected = Transcription()
    gradient, expected.factors = moments([START])
    model.train_on_batch(X, Y)
    expected.step(gradient, expected.factors)
    check_state(optimizer, model, expected)


def test_samples_of_a_kernel_have_the_kronecker_covariance():
    model = bdl.Sequential([keras.Input((3,)), layers.Dense(4, use_bias=False)])
    optimizer = noisy_kfac(temperature=0.5, augmentation_factor=2.0)
    model.compile(optimizer, "mse")
    model.fit(X[:, :3], X, 6, epochs=2, verbose=0)
    (matrix,) = optimizer._matrices
    a, s = (np.float64(factor) for factor in matrix.factors)
    # The prior is that of VOGN: tau delta / (rho N).
    delta = 0.5 * 2.0 / (2 * N)
    expected = 0.5 / (2 * N) * np.linalg.inv(np.kron(a, s) + delta * np.eye(12))
    variables = optimizer.prepare(model)

    @tf.function
    def draws_of_steps(steps):
        draws = tf.TensorArray(tf.float32, steps)
        for step in tf.range(steps):
            optimizer.iterations.assign(tf.cast(step, "int64"))
            (kernel,) = optimizer.draw(variables, TRAINING, 0)
            draws = draws.write(step, tf.reshape(kernel, [12]))
        return draws.stack()

    draws = np.float64(draws_of_steps(50_000))
    errors = draws - model.get_weights()[0].ravel()
    covariance = errors.T @ errors / len(draws)
    variances = np.diag(expected)
    stderr = np.sqrt(
        (np.outer(variances, variances) + expected**2) / len(draws)
    )
    assert np.max(np.abs(covariance - expected) / stderr) < 5
    # The other order of the factors is something else.
    other = 0.5 / (2 * N) * np.linalg.inv(np.kron(s, a) + delta * np.eye(12))
    assert np.max(np.abs(covariance - other) / stderr) > 20


def test_eager_graph_and_xla_agree_after_eight_steps():
    # Fewer examples than inputs: each factor has an eigenspace of which every
    # program chooses another basis.
    few, labels = np.tile(X[:4], 2), Y[:4]
    found = []
    for how in ({"run_eagerly": True}, {}, {"jit_compile": True}):
        keras.utils.set_random_seed(0)
        model = bdl.Sequential([keras.Input((8,)), layers.Dense(3)])
        model.compile(noisy_kfac(dataset_size=4), cross_entropy(), **how)
        for _ in range(8):
            model.train_on_batch(few, labels)
        found.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    eager, *others = found
    for weights in others:
        np.testing.assert_allclose(
            weights, eager, rtol=0, atol=1e-5 * np.abs(eager).max()
        )


def test_posterior_and_evaluation_have_the_same_distribution():
    optimizer = noisy_kfac(initial_curvature="first_batch")
    model = softmax_regression(optimizer, samples=400)
    model.fit(X, Y, 6, epochs=3, verbose=0)
    draws = tf.nn.softmax(
        [optimizer.call_with_draw(model, X, k) for k in range(400)]
    )
    p = bdl.predict(model, X, samples=400, verbose=0)
    spread = np.std(draws, 0) / np.sqrt(400)
    assert np.max(np.abs(p.mean - np.mean(draws, 0)) / spread) < 5 * 2**0.5


def network(optimizer, **compile):
    """A convolution, a normalization, an attention, a dense layer, twice."""
    inputs = keras.Input((6, 6, 1))
    x = layers.Conv2D(4, 3, activation="tanh")(inputs)
    x = layers.BatchNormalization(name="bn")(x)
    x = layers.Reshape((16, 4))(x)
    x = layers.LayerNormalization(name="ln")(x)
    x = layers.MultiHeadAttention(2, 2)(x, x)
    dense = layers.Dense(4, activation="tanh")
    x = dense(dense(x))
    x = layers.Dense(3)(layers.Flatten()(x))
    model = bdl.Model(inputs, x)
    model.compile(optimizer, cross_entropy(), **compile)
    return model


IMAGES = np.random.default_rng(1).normal(size=(N, 6, 6, 1)).astype("float32")


@pytest.mark.filterwarnings("ignore:.*fits independent weights")
@pytest.mark.parametrize("max_factor_size", [None, 20])
def test_matrices_have_factors_and_other_weights_move_as_in_vogn(
    max_factor_size,
):
    keras.utils.set_random_seed(0)
    limit = {"max_factor_size": max_factor_size}
    model = network(noisy_kfac(initial_curvature="first_batch", **limit))
    start = model.get_weights()
    gradients, squares = bdl.curvature.second_moments(model, (IMAGES, Y))
    model.train_on_batch(IMAGES, Y)
    optimizer = model.optimizer
    sizes = [(10, 4), (5, 4), (5, 4), (5, 4), (5, 4), (5, 4), (65, 3)]
    too_large = [] if max_factor_size is None else [sizes.pop()]
    assert [m.shape for m in optimizer._matrices] == sizes
    paths = [v.path for v in model.trainable_variables]
    others = [i for i, s in enumerate(optimizer._curvatures) if s is not None]
    names = ["bn/gamma", "bn/beta", "ln/gamma", "ln/beta"]
    names += paths[-2:] * len(too_large)
    assert [paths[i] for i in others] == names
    old = {w.path: s for w, s in zip(model.weights, start, strict=True)}
    for i in others:
        prior = 0.0 if "bn" in paths[i] else 2.0 / N
        m = gradients[i] + prior * old[paths[i]]
        new = old[paths[i]] - 0.05 * m / (squares[i] + prior + 0.1)
        np.testing.assert_allclose(model.trainable_variables[i], new, atol=1e-5)
    posterior = optimizer.posterior(model)
    assert len(posterior.matrices) == len(sizes)
    variance = posterior.get_state()["variance"]
    assert not np.any(variance[others[0]])
    assert np.min(variance[others[2]]) > 0
    bdl.predict(model, IMAGES, samples=2, verbose=0)


def test_a_warning_names_matrices_that_are_too_large_for_factors():
    with pytest.warns(match=r"kernel \(64, 3\).*`max_factor_size`, 63"):
        network(noisy_kfac(max_factor_size=63)).train_on_batch(IMAGES, Y)


@pytest.mark.filterwarnings("ignore:.*fits independent weights")
def test_without_room_for_any_factor_training_is_that_of_vogn():
    options = {"dataset_size": N, "curvature_every": 1, "seed": 7}
    weights = []
    for optimizer in (
        bdl.VOGN(**options),
        bdl.NoisyKFAC(max_factor_size=3, **options),  # the kernel is (4, 3)
    ):
        model = softmax_regression(optimizer)
        model.fit(X, Y, 6, epochs=2, shuffle=False, verbose=0)
        variances = map(optimizer.variance, model.trainable_variables)
        weights.append([*model.get_weights(), *variances])
    assert_equal(*weights)


def test_run_resumed_between_decompositions_ends_as_one_without_a_break(
    tmp_path,
):
    def fit(model):
        model.fit(IMAGES[:10], Y[:10], 2, shuffle=False, verbose=0)

    optimizer = noisy_kfac(
        initial_curvature="first_batch", dataset_size=None, update_every=3
    )
    whole = network(optimizer, train_samples=2)
    fit(whole)  # 5 steps: the next decomposition is due after one more
    whole.save(tmp_path / "half.keras")
    resumed = keras.models.load_model(tmp_path / "half.keras")
    for model in (whole, resumed):
        fit(model)
    assert_equal(
        [v.numpy() for v in [*resumed.weights, *resumed.optimizer.variables]],
        [v.numpy() for v in [*whole.weights, *whole.optimizer.variables]],
    )


def test_two_replicas_average_the_factors_and_stay_equal(mirrored):
    with mirrored.scope():
        optimizer = noisy_kfac()
        model = softmax_regression(optimizer)
        variables = optimizer.prepare(model)

    @tf.function
    def draws_of_replicas():
        draw = mirrored.run(lambda: optimizer.draw(variables, TRAINING, 0))
        return [mirrored.experimental_local_results(w) for w in draw]

    expected = Transcription()
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
        (g, f), (h, e) = halves
        model.fit(data, shuffle=False, verbose=0)
        expected.step(
            (g + h) / 2, [(p + q) / 2 for p, q in zip(f, e, strict=True)]
        )
    check_state(optimizer, model, expected)
    for v in [*variables, *optimizer.variables[1:]]:
        first, second = mirrored.experimental_local_results(v.value)
        np.testing.assert_array_equal(first, second)


def test_factors_are_unscaled_and_a_skipped_step_changes_nothing():
    with dtype_policy("mixed_float16"):
        model = softmax_regression(noisy_kfac(), train_samples=2)
    inner = model.optimizer.inner_optimizer
    inner.prepare(model)
    expected = Transcription()
    noises = noise_of_next_step(inner, 2)
    looked_at = [expected.draw(e) for e in noises]
    model.train_on_batch(X, Y)
    expected.step(*moments(looked_at))
    (matrix,) = inner._matrices
    for a, e in zip(matrix.factors, expected.factors, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-2 * np.abs(e).max())

    model.optimizer.dynamic_scale.assign(2.0**30)
    state = [v.numpy() for v in [*model.weights, *inner.variables]]
    model.train_on_batch(X, Y)
    for variable, before in zip(
        [*model.weights, *inner.variables], state, strict=True
    ):
        np.testing.assert_array_equal(variable, before)


def test_a_frozen_bias_is_no_row_of_the_matrix():
    optimizer = noisy_kfac(initial_curvature="first_batch")
    model = softmax_regression("sgd")
    model.layers[-1].bias.trainable = False
    model.compile(optimizer, cross_entropy())
    model.train_on_batch(X, Y)
    (matrix,) = optimizer._matrices
    assert matrix.shape == (4, 3)
    np.testing.assert_allclose(matrix.factors[0], X.T @ X / N, rtol=1e-5)
    np.testing.assert_array_equal(model.layers[-1].bias, START[1])
    assert optimizer.posterior(model).matrices[0].bias is None


def test_a_kernel_and_its_bias_are_excluded_together():
    optimizer = noisy_kfac(exclude_from_inference=["dense"])
    model = bdl.Sequential([keras.Input((4,)), layers.Dense(3, name="dense")])
    model.set_weights(START)
    model.compile(optimizer, cross_entropy(), run_eagerly=True)
    expected = Transcription(delta=0.0)
    model.train_on_batch(X, Y)
    expected.step(*moments([START]))
    check_state(optimizer, model, expected)
    assert optimizer.posterior(model).is_point
    with pytest.raises(ValueError, match="kernel and the bias"):
        softmax_regression(noisy_kfac(exclude_from_inference=["bias"])).fit(
            X, Y, verbose=0
        )
