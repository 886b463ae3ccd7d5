import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl

N, CHAINS = 500, 512
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).astype("float32") @ np.diag([1.0, 0.7, 0.5])
X[:, 1] += 0.5 * X[:, 0]  # correlated weights
Y = X @ [1.0, -2.0, 0.5] + 0.5 + RNG.normal(size=N)


def negative_log_likelihood(y_true, y_pred):
    """Of unit noise, summed over the columns: each is a chain of its own."""
    return 0.5 * keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1)


# `test_gaussian_targets` has both samplers with and without a limit.
@pytest.mark.parametrize(
    ("name", "max_speed"), [("ATMC", 0.006), ("SGNHT", None)]
)
def test_minibatches_give_the_exact_posterior_of_every_weight(name, max_speed):
    sampler = getattr(bdl, name)(
        dataset_size=N,
        learning_rate=1e-2,
        average_speed=2e-3,
        max_speed=max_speed,
        prior=bdl.priors.Normal(0.2),
    )
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(CHAINS)])
    model.compile(sampler, negative_log_likelihood, steps_per_execution=50)

    design = np.column_stack([X, np.ones(N)])
    precision = design.T @ design + np.eye(4) / 0.2**2
    mean = np.linalg.solve(precision, design.T @ Y)
    stddev = np.sqrt(np.diag(np.linalg.inv(precision)))

    # From the mode: the heat of a long way there would leave the thermostats
    # only in the time D / T, which is a thousand steps.
    model.set_weights(
        [np.tile(mean[:3, None], CHAINS), np.full(CHAINS, mean[3])]
    )
    samples = bdl.callbacks.SampleCollector(every=1, start_epoch=10)
    # Not arrays: after `set_random_seed` Keras shuffles them in the same way in
    # every epoch, and what repeats itself is no noise.
    data = tf.data.Dataset.from_tensor_slices((X, Y[:, None]))
    data = data.shuffle(N, seed=1).batch(50).repeat()
    model.fit(
        data,
        epochs=50,
        steps_per_epoch=50,  # five passes over the data
        verbose=0,
        callbacks=[samples],
    )

    draws = [samples.posterior.sample(s) for s in range(samples.num_collected)]
    draws = np.array([[*kernel, bias] for kernel, bias in draws])
    assert draws.shape == (40, 4, CHAINS)
    np.testing.assert_allclose(draws.std((0, 2)), stddev, rtol=0.05)
    np.testing.assert_array_less(
        np.abs(draws.mean((0, 2)) - mean), 0.1 * stddev
    )
