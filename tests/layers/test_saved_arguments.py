import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import layers

ARGUMENTS = {
    "prior": bdl.priors.Laplace(0.3, 0.1),
    "rho_initializer": keras.initializers.Constant(-1.0),
    "dataset_size": 7,
    "seed": 4,
}
LAYERS = {
    "MeanFieldEmbedding": (
        (2,),
        {"input_dim": 5, "output_dim": 3, "truncation": 1.5},
    ),
    "RadialEmbedding": ((2,), {"input_dim": 5, "output_dim": 3}),
    "MeanFieldConv2D": (
        (6, 6, 4),
        {
            "filters": 4,
            "kernel_size": 3,
            "groups": 2,
            "dilation_rate": 2,
            "padding": "same",
            "activation": "tanh",
            "kernel_constraint": keras.constraints.MaxNorm(2.0),
            "kernel_regularizer": keras.regularizers.L2(0.1),
            "bias_prior": bdl.priors.Normal(0.2),
            "variational_bias": False,
            "estimator": "flipout",
            "truncation": 1.5,
        },
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_loaded_layer_has_the_saved_arguments(name, tmp_path):
    shape, arguments = LAYERS[name]
    layer = getattr(layers, name)(**arguments, **ARGUMENTS)
    model = keras.Sequential([keras.Input(shape), layer])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    (new,) = loaded.layers
    assert new.get_config() == layer.get_config()
    for one in (layer, new):
        given = {**arguments, **ARGUMENTS}
        assert getattr(one, "truncation", None) == given.get("truncation")
        assert one.prior.scale == 0.3
        assert one.dataset_size.given == 7 and one.seed == 4
        assert one.variational_bias == given.get("variational_bias", True)
    # The same seed draws with all arguments that affect a draw.
    x = np.ones((2, *shape), "float32")
    np.testing.assert_array_equal(
        loaded(x, training=True), model(x, training=True)
    )
    assert float(new.kl_divergence()) == float(layer.kl_divergence())
