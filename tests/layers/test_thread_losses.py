import keras
import numpy as np

import keras_bdl as bdl
from keras_bdl import layers


def test_each_replica_has_its_divergence_once_when_replicas_interleave(
    mirrored,
):
    # Without data terms, the loss is the KL, and so are its gradients.
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    with mirrored.scope():
        model = bdl.Sequential(
            [
                keras.Input((3,)),
                layers.MeanFieldDense(4),
                keras.layers.BatchNormalization(synchronized=True),
                layers.MeanFieldDense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(8.0), lambda y, p: 0.0 * (y - p))
    variational = model.layers[0], model.layers[2]
    kl = sum(float(layer.kl_divergence()) for layer in variational)
    means = [np.asarray(layer.kernel_mean) for layer in variational]
    logs = model.fit(x, x[:, :1], batch_size=8, verbose=0).history
    np.testing.assert_allclose(logs["kl"], kl / 8, rtol=1e-5)
    np.testing.assert_allclose(logs["loss"], kl / 8, rtol=1e-5)
    # The gradient of `mean^2 / 2 / N`, times a rate of N.
    for layer, mean in zip(variational, means, strict=True):
        np.testing.assert_allclose(layer.kernel_mean, 0 * mean, atol=1e-6)
