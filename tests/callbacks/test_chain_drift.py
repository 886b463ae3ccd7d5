import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import beta

import keras_bdl as bdl
from keras_bdl.callbacks import SampleCollector
from keras_bdl.callbacks._chain_drift import drift
from keras_bdl.callbacks._chain_drift import independent_directions
from keras_bdl.callbacks._chain_drift import largest_drift
from keras_bdl.callbacks._chain_drift import warn_of_drift
from tests.helpers import assert_moment

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)).astype("float32")
Y = X[:, :1]


def drifts(paths):
    """Returns the drift of each column, the path of one weight."""
    return np.array([drift([[w] for w in path]) for path in paths.T])


@pytest.mark.parametrize("n", [8, 32])
def test_independent_samples_have_a_beta_distributed_drift(n):
    found = drifts(RNG.normal(size=(n, 2000)))
    expected = beta(0.5, n / 2 - 1)
    assert_moment(found.mean(), expected.mean(), expected.std() / 2000**0.5)
    assert np.quantile(found, 0.9) == pytest.approx(expected.ppf(0.9), rel=0.1)
    five = expected.mean() + 5 * expected.std()
    assert largest_drift(n) == pytest.approx(max(0.45, five))


@pytest.mark.parametrize("n", [16, 32])
def test_diffusion_of_many_weights_has_drift_one_half_and_warns(n):
    steps = RNG.normal(size=(n, 20_000)).cumsum(0)
    # Closed forms of random walks of n steps, by their covariance min(i, j).
    c = np.minimum.outer(np.arange(n), np.arange(n)) + 1.0
    sign = np.repeat([-2 / n, 2 / n], n // 2)
    expected = n / 4 * (sign @ c @ sign) / (np.trace(c) - c.sum() / n)
    share = drift([[w[:9000], w[9000:]] for w in steps])
    assert share == pytest.approx(expected, rel=0.05)
    assert share > largest_drift(n)
    line = drift([[np.array([t])] for t in range(n)])
    assert line == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("n", [4, 5, 6, 8, 12])
def test_few_samples_detect_a_diffusion_of_many_weights(n):
    steps = RNG.normal(size=(n, 2000)).cumsum(0)
    with pytest.warns(UserWarning, match="still drifts"):
        assert warn_of_drift(n, lambda i: [steps[i, :500], steps[i, 500:]])


@pytest.mark.parametrize(
    "n, weights, most",
    [
        *((4, weights, 0.03) for weights in (1, 2, 5, 10)),
        *((6, weights, 0.01) for weights in (1, 2, 5, 10)),
        *((n, 1, 0.01) for n in (8, 16, 32)),
        *((n, 10, 0.005) for n in (8, 16, 32)),
        *((n, 300, 0.0) for n in (4, 6, 8, 16, 32)),
    ],
)
def test_independent_samples_cause_no_warning(n, weights, most):
    chains = RNG.normal(size=(1000, n, weights))
    drifting = [
        drift([[w] for w in chain])
        > largest_drift(n, independent_directions([[w] for w in chain]))
        for chain in chains
    ]
    assert np.mean(drifting) <= most


@pytest.mark.parametrize("scales", [[1.0], [1.0] * 5, [4.0, 2.0, 1.0, 0.5]])
def test_number_of_directions_follows_from_the_covariance(scales):
    values = RNG.normal(size=(4000, len(scales))) * scales
    found = independent_directions([[w[:1], w[1:]] for w in values])
    squares = np.square(scales)
    expected = squares.sum() ** 2 / np.square(squares).sum()
    assert found == pytest.approx(expected, rel=0.1)
    line = [[np.array([t, 2.0 * t])] for t in range(8)]
    assert independent_directions(line) == pytest.approx(1.0)
    assert independent_directions([line[0]] * 8) == 1.0


def test_fewer_than_four_samples_cause_no_warning():
    for n in range(4):
        assert not warn_of_drift(n, lambda i: [RNG.normal(size=1000) + 9 * i])


def test_four_samples_have_at_most_a_hundred_directions():
    # By chance, the two differences are orthogonal in two directions.
    samples = [[np.array(w)] for w in ((0, 0), (1, 0), (0, 0), (0, 1))]
    assert independent_directions(samples) == pytest.approx(1.0)
    samples[3] = [np.array((0.001, 1.0))]
    assert independent_directions(samples) == pytest.approx(100, rel=0.01)


def negative_log_likelihood(y_true, y_pred):
    """Negative log-likelihood of unit noise."""
    return keras.ops.square(y_true - y_pred)[:, 0] / 2


def chain(sampler, start, **kwargs):
    """A chain with a Gaussian posterior in closed form."""
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.set_weights([start])
    model.compile(sampler, negative_log_likelihood)
    collector = SampleCollector(1, **kwargs)
    # For arrays, an epoch of Keras takes ten times as long as this step.
    data = tf.data.Dataset.from_tensors((X, Y))
    model.fit(data, epochs=80, shuffle=False, verbose=0, callbacks=[collector])
    return model, collector


def test_chain_near_its_start_causes_a_warning(tmp_path):
    start = np.full((2, 1), 3.0)
    sampler = bdl.SGLD(1e-5, dataset_size=40, temperature=0.0)
    with pytest.warns(UserWarning, match="of a chain that still drifts"):
        chain(sampler, start, directory=tmp_path)


@pytest.mark.filterwarnings("error:.*a chain that still drifts")
@pytest.mark.parametrize("seed", range(2))
def test_mixed_chain_causes_no_warning_from_any_start(seed):
    precision = X.T @ X
    mode = np.array([[1.0], [0.0]])
    # Steps as long as half the posterior is wide.
    rate = float(0.5 / np.linalg.eigvalsh(precision).max() * 40)
    for start in (mode, mode + 3 / np.sqrt(40)):
        sampler = bdl.SGLD(rate, dataset_size=40, seed=seed)
        model, collector = chain(sampler, start)  # a warning would raise
        samples = [collector.posterior.sample(i)[0] for i in range(80)]
        assert np.mean(samples) == pytest.approx(0.5, abs=0.2)


@pytest.mark.filterwarnings("error:.*a chain that still drifts")
def test_snapshots_of_another_optimizer_cause_no_warning():
    chain(keras.optimizers.SGD(1e-3), np.full((2, 1), 3.0))
