import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import chi2

import keras_bdl as bdl
from keras_bdl.callbacks import ChainDiagnostics
from keras_bdl.callbacks._chain_diagnostics import kinetic_band
from tests.helpers import assert_moment

N, CHAINS = 40, 2000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2)).astype("float32")
Y = np.zeros((N, CHAINS), "float32")
PRECISION = X.T @ X + np.eye(2)
STEP = 0.02 / np.sqrt(np.linalg.eigvalsh(PRECISION).max())

# One epoch of `run` is twenty passes over the data.
pytestmark = pytest.mark.filterwarnings("ignore:.*an epoch of this `fit` has")


def negative_log_likelihood(y_true, y_pred):
    """Negative log-likelihood of unit noise. Each column is a chain."""
    return 0.5 * keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1)


def at_its_mode(optimizer=bdl.SGHMC, max_speed=3.0, **kwargs):
    """Chains of mass 1 with a Gaussian posterior around 0 per column."""
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(CHAINS, use_bias=False, name="dense"),
        ]
    )
    sampler = optimizer(
        5 * STEP,
        dataset_size=N,
        average_speed=5 * STEP,
        max_speed=max_speed and max_speed * 5 * STEP,
        friction=0.8,
        prior=bdl.priors.Normal(1.0),
        **kwargs,
    )
    model.compile(sampler, negative_log_likelihood)
    posterior = np.linalg.cholesky(np.linalg.inv(PRECISION))
    model.set_weights([posterior @ RNG.normal(size=(2, CHAINS))])
    return model


def run(model, epochs, *callbacks):
    data = tf.data.Dataset.from_tensors((X, Y)).repeat(20)
    options = {"epochs": epochs, "verbose": 0, "callbacks": list(callbacks)}
    return model.fit(data, **options).history


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_both_temperatures_of_a_chain_in_equilibrium_equal_t(temperature):
    model = at_its_mode(temperature=temperature)
    model.set_weights([w * temperature**0.5 for w in model.get_weights()])
    logs = run(model, 6, ChainDiagnostics(verbose=0))
    # Two weights a chain, and (2) of a Gaussian has the variance 2 T^2.
    error = temperature * np.sqrt(2 / (2 * CHAINS))
    for name in ("kinetic", "configurational"):
        assert_moment(logs[f"{name}_temperature"][-1], temperature, error)
    assert logs["kinetic_in_band"][-1] == 1.0


def test_table_judges_a_chain_by_its_configurational_temperature():
    diagnostics = ChainDiagnostics(verbose=0)
    run(at_its_mode(), 2, diagnostics)
    assert "far from T" not in diagnostics.table()
    # Held at its start: its 4000 weights are ten times too far from the mode.
    model = at_its_mode()
    model.set_weights([10 * w for w in model.get_weights()])
    model.optimizer.learning_rate = 1e-9
    run(model, 2, diagnostics := ChainDiagnostics(verbose=0))
    table = diagnostics.table().splitlines()
    assert "dense/kernel" in table[1] and table[1].endswith("far from T")
    stuck = float(table[-1].split(", ")[1])
    assert_moment(stuck, 100.0, 100 * np.sqrt(2 / (2 * CHAINS)))
    assert "the chain has not reached equilibrium" in table[-1]


def test_gradient_noise_moves_a_chain_out_of_its_band(capsys):
    model = at_its_mode()
    noisy = tf.data.Dataset.from_tensors((X, Y)).repeat(20)
    noisy = noisy.map(lambda x, y: (x, y + 5 * tf.random.normal(tf.shape(y))))
    diagnostics = ChainDiagnostics(per_variable=True)
    logs = model.fit(noisy, epochs=5, verbose=0, callbacks=[diagnostics])
    logs = logs.history
    assert logs["kinetic_temperature"][-1] > 1.2
    assert logs["kinetic_in_band"][-1] == 0.0
    path = model.trainable_variables[0].path
    assert logs[f"kinetic_temperature/{path}"] == logs["kinetic_temperature"]
    assert logs[f"kinetic_temperature_high/{path}"][-1] < 1.2
    printed = capsys.readouterr().out
    assert diagnostics.table() in printed
    assert path in printed and "out of its band" in printed


def test_temperatures_equal_a_loop_over_the_steps():
    class Watch(keras.callbacks.Callback):
        """Runs one batch at a time, to record all weights."""

        configurational = []

        def on_train_batch_begin(self, batch, logs=None):
            w = self.model.get_weights()[0].astype("float64")
            self.configurational.append(np.mean(w * (PRECISION @ w)))

        def on_epoch_end(self, epoch, logs=None):
            optimizer = self.model.optimizer
            p = optimizer._momenta[0].numpy().astype("float64")
            m, limit = optimizer.mass_and_limit(0)
            velocity = p / (m * np.sqrt((p / (m * limit)) ** 2 + 1))
            self.kinetic = np.mean(p * velocity)

    watch = Watch()
    logs = run(at_its_mode(bdl.ATMC), 1, watch, ChainDiagnostics(verbose=0))
    np.testing.assert_allclose(
        logs["configurational_temperature"][0],
        np.mean(watch.configurational),
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        logs["kinetic_temperature"][0], watch.kinetic, rtol=1e-5
    )


def test_band_without_a_speed_limit_is_the_chi_square_band():
    expected = chi2.ppf([0.005, 0.995], 7) / 7
    np.testing.assert_allclose(kinetic_band(7, 0.99), expected)


@pytest.mark.parametrize("rest_energy", [0.5, 1.0, 11.1])
def test_band_with_a_speed_limit_has_the_spread_of_its_momentum(rest_energy):
    p = np.linspace(-80, 80, 400_001)  # m = T = 1
    q = p**2 / rest_energy + 1
    density = np.exp(-rest_energy * (np.sqrt(q) - 1))
    density /= density.sum()
    kinetic = p**2 / np.sqrt(q)
    assert (density * kinetic).sum() == pytest.approx(1.0)
    stddev = np.sqrt((density * kinetic**2).sum() - 1)
    low, high = kinetic_band(10**6, 0.99, rest_energy)  # of a Gaussian, then
    np.testing.assert_allclose(
        (high - low) / 2, 2.5758 * stddev / 1000, rtol=1e-3
    )


def test_sampler_without_momenta_has_only_the_configurational_temperature():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(bdl.SGLD(0.01, dataset_size=N), "mse")
    logs = model.fit(
        X, X[:, :1], verbose=0, callbacks=[ChainDiagnostics(verbose=0)]
    ).history
    assert np.isfinite(logs["configurational_temperature"]).all()
    assert "kinetic_temperature" not in logs


def test_replicas_measure_the_same_as_one_device(mirrored):
    def configurational(model):
        # Two batches of the same examples in one global batch of 80.
        x, y = np.concatenate([X, X]), np.concatenate([Y, Y])
        return model.fit(
            x, y, batch_size=80, epochs=3, shuffle=False, verbose=0,
            callbacks=[ChainDiagnostics(verbose=0)],
        ).history["configurational_temperature"]  # fmt: skip

    global RNG
    state = RNG.bit_generator.state
    alone = configurational(at_its_mode(bdl.ATMC, seed=0))
    RNG.bit_generator.state = state
    with mirrored.scope():
        model = at_its_mode(bdl.ATMC, seed=0)
    np.testing.assert_allclose(configurational(model), alone, rtol=1e-4)


def test_wrong_use_is_refused():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match="needs a sampler"):
        model.fit(X, X[:, :1], verbose=0, callbacks=[ChainDiagnostics()])
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(bdl.SGLD(dataset_size=N), "mse")
    with pytest.raises(ValueError, match="is built before `fit`"):
        model.fit(X, X[:, :1], verbose=0, callbacks=[ChainDiagnostics()])
    with pytest.raises(ValueError, match="confidence=1.0"):
        ChainDiagnostics(confidence=1.0)
    with pytest.raises(RuntimeError, match="has measured no epoch"):
        ChainDiagnostics().table()
