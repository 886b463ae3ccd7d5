"""A function split into a shared part and a part for each sample."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.prediction._sample_loop import SplitFunction


def dense(x, kernel, shift):
    return tf.tanh(tf.matmul(x, kernel)) + shift


def two_outputs_of_one_operation(x, kernel, shift):
    first, second = tf.split(tf.matmul(x, kernel), 2, axis=1)
    return tf.sin(tf.tanh(first)) + second * shift


def constant_that_waits(x, kernel, shift):
    y = tf.matmul(x, kernel)
    with tf.control_dependencies([tf.tanh(y)]):
        return tf.constant(2.0) * shift + y


@pytest.mark.parametrize(
    "function", [dense, two_outputs_of_one_operation, constant_that_waits]
)
def test_part_for_each_sample_holds_no_operation_of_the_shared_part(function):
    rng = np.random.default_rng(0)
    x, kernel = (
        tf.constant(rng.normal(size=s), tf.float32) for s in ((4, 3), (3, 2))
    )
    shifts = [tf.constant([float(i), -float(i)]) for i in range(3)]

    split = SplitFunction(
        lambda fixed, varying: function(*fixed, *varying),
        [x, kernel],
        shifts[:1],
    )
    assert split.repeats and split.products == 0
    shared = tf.function(split.once)([x, kernel])
    for_sample = tf.function(split.for_sample)
    for shift in shifts:
        expected = function(x, kernel, shift)
        found = for_sample(shared, [shift])
        np.testing.assert_allclose(found, expected, atol=1e-6)

    graph = for_sample.get_concrete_function(shared, shifts[:1]).graph
    functions = graph.as_graph_def().library.function
    found = {node.op for part in functions for node in part.node_def}
    assert "AddV2" in found
    assert not found & {"MatMul", "Tanh", "Split"}
