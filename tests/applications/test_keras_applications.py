"""Tests of networks of `keras.applications` with `keras_bdl`."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl

KERNELS = (keras.layers.Conv2D, keras.layers.Dense)


# Their numbers of weights that are trained, without those of the classifier,
# as Keras lists them.
@pytest.mark.parametrize(
    "name, weights", [("ResNet50", 23_534_592), ("ResNet152", 58_219_520)]
)
def test_residual_network_becomes_bayesian(name, weights):
    make = getattr(keras.applications, name)
    network = make(
        weights=None,
        input_shape=(32, 32, 3),
        classes=3,
        classifier_activation=None,
    )
    sizes = {v.path: v.shape for v in network.trainable_variables}
    assert sum(map(np.prod, sizes.values())) == weights + 2049 * 3
    model = bdl.convert(network, "mean_field", dataset_size=100)
    before = [x.name for x in network.layers if isinstance(x, KERNELS)]
    after = [
        x.name for x in model.layers if isinstance(x, bdl.layers.MeanFieldLayer)
    ]
    assert after == before
    assert not any(type(x) in KERNELS for x in model.layers)
    x = np.random.default_rng(0).normal(size=(1, 32, 32, 3))
    np.testing.assert_allclose(model(x), network(x), rtol=1e-4, atol=1e-5)
