import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_bdl as bdl

N, CHAINS, PRIOR_STDDEV = 500, 512, 1.0
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).astype("float32")
X[:, 1] += 0.8 * X[:, 0]  # correlated weights
X[:, 2] -= 0.5 * X[:, 1]
LOGITS = X @ [1.0, -1.5, 0.5] + 0.5
Y = (RNG.uniform(size=N) < 1 / (1 + np.exp(-LOGITS))).astype("float32")[:, None]


def negative_log_likelihood(y_true, logits):
    """Summed over the columns: each is a chain of its own."""
    return ops.sum(ops.softplus(logits) - y_true * logits, axis=-1)


@pytest.fixture(scope="module")
def nuts():
    """Mean and standard deviation of the three weights and the bias."""
    from tensorflow_probability import mcmc

    design = tf.constant(np.column_stack([X, np.ones(N, "float32")]))

    def log_prob(weights):
        logits = tf.linalg.matmul(design, weights, transpose_b=True)
        return (
            tf.reduce_sum(Y * logits - tf.math.softplus(logits), axis=0)
            - tf.reduce_sum(tf.square(weights / PRIOR_STDDEV), axis=-1) / 2
        )

    @tf.function(jit_compile=True)
    def run():
        return mcmc.sample_chain(
            num_results=250,
            num_burnin_steps=150,
            current_state=tf.zeros((64, 4)),
            kernel=mcmc.DualAveragingStepSizeAdaptation(
                mcmc.NoUTurnSampler(log_prob, step_size=0.1),
                num_adaptation_steps=120,
            ),
            trace_fn=None,
            seed=(0, 1),
        )

    draws = run()
    assert np.max(mcmc.potential_scale_reduction(draws)) < 1.01
    draws = draws.numpy().reshape(-1, 4)
    return draws.mean(axis=0), draws.std(axis=0)


def test_minibatches_give_the_posterior_of_nuts(nuts):
    sampler = bdl.ATMC(
        dataset_size=N,
        learning_rate=3e-2,
        average_speed=5e-3,
        max_speed=1.25e-2,
        prior=bdl.priors.Normal(PRIOR_STDDEV),
    )
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(CHAINS)])
    model.compile(sampler, negative_log_likelihood, steps_per_execution=50)
    samples = bdl.callbacks.SampleCollector(every=1, start_epoch=30)
    data = tf.data.Dataset.from_tensor_slices((X, Y))
    data = data.shuffle(N, seed=1).batch(50).repeat()
    model.fit(
        data,
        epochs=70,
        steps_per_epoch=50,  # five passes over the data
        verbose=0,
        callbacks=[samples],
    )

    draws = [samples.posterior.sample(s) for s in range(samples.num_collected)]
    draws = np.array([[*kernel, bias] for kernel, bias in draws])
    mean, stddev = nuts
    np.testing.assert_allclose(draws.std((0, 2)), stddev, rtol=0.05)
    np.testing.assert_array_less(
        np.abs(draws.mean((0, 2)) - mean), 0.1 * stddev
    )
