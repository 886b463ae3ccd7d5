"""A function split into a shared part and a part for each sample."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.prediction.split_function import SplitFunction


@pytest.fixture
def no_graph_optimizer():
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )


def test_part_for_each_sample_runs_without_the_inputs_of_the_shared_part(
    no_graph_optimizer,
):
    rng = np.random.default_rng(0)
    x, kernel = (
        tf.constant(rng.normal(size=s), tf.float32) for s in ((4, 3), (3, 2))
    )
    shifts = [tf.constant([float(i), -float(i)]) for i in range(3)]

    def function(fixed, varying):
        return tf.tanh(tf.matmul(*fixed)) + varying[0]

    split = SplitFunction(function, [x, kernel], shifts[:1])
    assert split.repeats and split.products == 0
    shared = tf.function(split.once)([x, kernel])
    for_sample = tf.function(split.for_sample)
    for shift in shifts:
        expected = np.tanh(np.matmul(x, kernel)) + shift
        found = for_sample(shared, [shift])
        np.testing.assert_allclose(found, expected, atol=1e-6)
