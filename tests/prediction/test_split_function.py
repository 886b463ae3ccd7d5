"""A function split into a shared part and a part for each sample."""

import numpy as np
import tensorflow as tf

from keras_bdl.prediction.split_function import SplitFunction


def test_part_for_each_sample_holds_no_operation_of_the_shared_part():
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

    graph = for_sample.get_concrete_function(shared, shifts[:1]).graph
    functions = graph.as_graph_def().library.function
    found = {node.op for part in functions for node in part.node_def}
    assert "AddV2" in found
    assert not found & {"MatMul", "Tanh"}
