import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.applications import MultiHeadMLP
from tests.helpers import assert_moment


def test_mean_square_of_the_logits_is_twice_that_of_the_input():
    # In the mean over the initial weights, exactly: a layer of He's puts out
    # twice the mean square of what it is given, and ReLU halves it.
    x = np.random.default_rng(0).normal(size=(1, 10)).astype("float32")
    squares = [
        np.mean(np.square(MultiHeadMLP((10,), 10, units=(50, 50, 50))(x)))
        for _ in range(20)
    ]
    stderr = np.std(squares, ddof=1) / np.sqrt(len(squares))
    assert stderr < 0.3
    assert_moment(np.mean(squares), 2 * np.mean(x**2), stderr)


def test_networks_of_the_tasks_share_the_body_also_when_converted():
    model = MultiHeadMLP((4, 2), heads=3, classes=5, units=(8, 6))
    assert model.output_shape == [(None, 5)] * 3
    model = bdl.convert(model, "radial", dataset_size=10)
    networks = [bdl.Model(model.input, y) for y in model.outputs]
    x = np.ones((2, 4, 2), "float32")
    for k, network in enumerate(networks, start=1):
        names = [layer.name for layer in network.layers if layer.weights]
        assert names == ["dense1", "dense2", f"head{k}"]
        assert network.get_layer("dense1") is model.get_layer("dense1")
        np.testing.assert_allclose(network(x), model(x)[k - 1], rtol=1e-6)


@pytest.mark.parametrize("heads", [0, 2.0, True])
def test_wrong_number_of_heads_is_refused(heads):
    message = f"`heads` must be a positive integer. Received: heads={heads}"
    with pytest.raises(ValueError, match=message):
        MultiHeadMLP(heads=heads)
