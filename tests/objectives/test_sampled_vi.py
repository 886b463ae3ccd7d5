import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._random._noise import TRAINING
from keras_bdl.objectives import PerExampleFisher
from keras_bdl.objectives import SampledVI
from keras_bdl.objectives import TaylorVI
from tests.helpers import assert_moment
from tests.objectives.transcription import N
from tests.objectives.transcription import nll
from tests.objectives.transcription import start
from tests.optimizers.variational import START
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import per_example_gradients
from tests.optimizers.variational import softmax_regression

RNG = np.random.default_rng(2)
WEIGHTS = RNG.normal(size=3)
INPUTS = RNG.normal(size=(8, 3))
LABELS = RNG.integers(0, 2, (8, 1))


def logistic_regression(objective, **compile):
    model = bdl.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.set_weights([WEIGHTS[:, None]])
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.BinaryCrossentropy(from_logits=True),
        objective=objective,
        **compile,
    )
    return model


def nll_of_steps(model, steps, sigma=0.0):
    """The logged data term of single steps on the whole batch.

    Without its part of first order in the noise, which has no expectation.
    """
    p = 1 / (1 + np.exp(-INPUTS @ WEIGHTS))
    gradient = INPUTS.T @ (p - LABELS[:, 0]) / 8
    model.objective.dataset_size.count(8)
    model.make_train_function()
    inputs = INPUTS.astype("float32")
    data = iter(tf.data.Dataset.from_tensors((inputs, LABELS)).repeat())
    noises_of_next_step = tf.function(
        lambda: noise_of_next_step(model, model.train_samples)
    )
    found = []
    for _ in range(steps):
        first_order = 0.0
        if sigma:
            noises = np.float64(noises_of_next_step())
            first_order = sigma * np.mean(gradient @ noises)
        model.reset_metrics()
        model.train_function(data)
        nll = float(model.get_metrics_result()["nll"])
        found.append(nll - first_order)
    return np.array(found)


def expected_nll(sigma):
    """Under the Gaussian, exactly: each logit is Gaussian."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    spread = sigma * np.linalg.norm(INPUTS, axis=1, keepdims=True)
    logits = INPUTS @ WEIGHTS[:, None] + spread * nodes
    losses = np.logaddexp(0, logits) - LABELS * logits
    return np.mean(losses @ weights / weights.sum())


class HessianOfLogisticRegression(bdl.extend.HessianDiagonal):
    def __call__(self, forward, values):
        x, _, _ = forward.data
        p = tf.sigmoid(x @ values[0])
        h = tf.reduce_mean(tf.square(x) * p * (1 - p), 0)[:, None]
        return forward(values), [h]


def test_expectation_equals_taylor_vi_to_second_order():
    gaps, of_fisher = [], []
    for sigma in (0.2, 0.1):
        drawn = nll_of_steps(
            logistic_regression(SampledVI("fixed", sigma), train_samples=16),
            100,
            sigma,
        )
        exact = expected_nll(sigma)
        error = drawn.std() / np.sqrt(len(drawn))
        assert_moment(drawn.mean(), exact, error)
        assert error < 0.02 * sigma**2  # the second order would be seen
        for estimate, found in (
            (HessianOfLogisticRegression(), gaps),
            (PerExampleFisher(), of_fisher),
        ):
            objective = TaylorVI("fixed", sigma, hessian_diagonal=estimate)
            (taylor,) = nll_of_steps(logistic_regression(objective), 1)
            found.append(abs(taylor - exact))
    # The next term is of fourth order, as odd ones have no expectation. What
    # distinguishes the Fisher information from the Hessian is of second.
    powers = np.log2(gaps[:-1]) - np.log2(gaps[1:])
    np.testing.assert_allclose(powers, 4.0, atol=0.35)
    powers = np.log2(of_fisher[:-1]) - np.log2(of_fisher[1:])
    np.testing.assert_allclose(powers, 2.0, atol=0.1)


def noise_of_next_step(model, draws):
    variables = model.trainable_variables
    return [
        model.objective.noises(model, variables, stream=TRAINING, number=k)
        for k in range(draws)
    ]


@pytest.mark.parametrize("prior", ["normal", "mixture"])
def test_one_step_equals_the_equations(prior):
    mixture = bdl.extend.ScaleMixture(1.0, 0.1)
    objective = SampledVI(
        "diagonal", 0.3, temperature=0.5, learning_rate_multiplier=1.0,
        prior=mixture if prior == "mixture" else None, seed=5,
    )  # fmt: skip
    model = softmax_regression(
        keras.optimizers.SGD(1.0), objective=objective, train_samples=2
    )
    noises = [
        [np.float64(e) for e in noise] for noise in noise_of_next_step(model, 2)
    ]
    loss, of_weights, of_logs = 0.0, [0.0, 0.0], [0.0, 0.0]
    for of_draw in noises:
        weights = [w + 0.3 * e for w, e in zip(start(), of_draw, strict=True)]
        loss += nll(*weights) / 2
        gradients = [g.mean(0) for g in per_example_gradients(*weights)]
        for i, (w, e, g) in enumerate(
            zip(weights, of_draw, gradients, strict=True)
        ):
            if prior == "normal":
                energy = 0.5 * (START[i] ** 2 + 0.09)
                slope, by_log = START[i], 0.09
            else:
                energy, slope = mixture_energy(w)
                by_log = slope * 0.3 * e
            if prior == "mixture":
                entropy = np.log(0.3) + 0.5 * np.log(2 * np.pi) + 0.5
            else:
                entropy = np.log(0.3) + 0.5
            loss += 0.5 / N * np.sum(energy - entropy) / 2
            of_weights[i] += (g + 0.5 / N * slope) / 2
            of_logs[i] += (g * 0.3 * e + 0.5 / N * (by_log - 1)) / 2
    logs = model.fit(X, Y, N, shuffle=False, verbose=0).history
    assert logs["loss"][0] == pytest.approx(loss, rel=1e-5)
    for new, old, g in zip(model.get_weights(), START, of_weights, strict=True):
        np.testing.assert_allclose(old - new, g, atol=2e-6)
    moved = -objective.trainable_variables[0].numpy()
    expected = np.concatenate([g.ravel() for g in of_logs])
    np.testing.assert_allclose(moved, expected, atol=2e-6)


def mixture_energy(w):
    """-log p of each weight, and its slope."""
    densities = [
        0.5 * np.exp(-0.5 * (w / s) ** 2) / (s * np.sqrt(2 * np.pi))
        for s in (1.0, 0.1)
    ]
    p = sum(densities)
    slope = sum(
        d * w / s**2 for d, s in zip(densities, (1.0, 0.1), strict=True)
    )
    return -np.log(p), slope / p


def test_samples_differ_between_indices_steps_and_replicas(mirrored):
    with mirrored.scope():
        model = softmax_regression(
            keras.optimizers.SGD(0.0), objective=SampledVI("fixed", 0.3)
        )
    variables, objective = model.trainable_variables, model.objective

    @tf.function
    def kernels():
        of_replicas = mirrored.run(
            lambda: [
                objective.noises(model, variables, stream=TRAINING, number=k)[0]
                for k in range(2)
            ]
        )
        return [
            one
            for draw in of_replicas
            for one in mirrored.experimental_local_results(draw)
        ]

    found = [k.numpy() for k in kernels()]
    model.optimizer.iterations.assign_add(1)
    found += [k.numpy() for k in kernels()]
    assert len({tuple(k.ravel()) for k in found}) == 8
