"""Tests of a network of `keras.applications` with `keras_bdl`."""

import keras
import numpy as np

import keras_bdl as bdl

KERNELS = (keras.layers.Conv2D, keras.layers.Dense)


def test_residual_network_becomes_bayesian():
    network = keras.applications.ResNet50(
        weights=None,
        input_shape=(32, 32, 3),
        classes=3,
        classifier_activation=None,
    )
    sizes = {v.path: v.shape for v in network.trainable_variables}
    # As Keras lists them, with another classifier.
    assert sum(map(np.prod, sizes.values())) == 23_534_592 + 2049 * 3
    model = bdl.convert(network, "mean_field", dataset_size=100)
    before = [x.name for x in network.layers if isinstance(x, KERNELS)]
    after = [
        x.name for x in model.layers if isinstance(x, bdl.extend.MeanFieldLayer)
    ]
    assert after == before
    assert not any(type(x) in KERNELS for x in model.layers)
    x = np.random.default_rng(0).normal(size=(1, 32, 32, 3))
    np.testing.assert_allclose(model(x), network(x), rtol=1e-4, atol=1e-5)
