import keras
import numpy as np

from keras_bdl import layers
from keras_bdl.priors import Laplace
from keras_bdl.priors import Normal


def test_priors_set_in_any_order_come_back_from_a_file(tmp_path):
    layer = layers.RadialDense(2)
    model = keras.Sequential([keras.Input((3,)), layer])
    q = layer.posteriors
    layer.set_prior(bias=q["bias"])
    layer.set_prior(kernel=q["kernel"])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert len(layer.non_trainable_variables) == 5  # and a seed
    for name in ("kernel", "bias"):
        for part in ("mean", "stddev"):
            stored = getattr(loaded, f"{name}_prior_{part}")
            np.testing.assert_array_equal(stored, getattr(q[name], part))


def test_prior_version_counts_only_new_kinds_of_priors():
    layer = layers.MeanFieldDense(2)
    layer.build((None, 3))
    versions = [layer.prior_version]
    for prior in (Normal(2.0), Laplace(1.0)):
        layer.set_prior(kernel=prior)
        versions.append(layer.prior_version)
    layer.posterior_becomes_prior()
    versions.append(layer.prior_version)
    layer.posterior_becomes_prior(lambda q: type(q)(q.mean, 2 * q.stddev))
    versions.append(layer.prior_version)
    assert versions == [0, 1, 2, 3, 3]
