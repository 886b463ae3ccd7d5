import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.applications import VGG16
from keras_bdl.applications import VGG16BN


def test_convolutions_have_the_published_number_of_weights():
    convolutions = VGG16(include_top=False).count_params()
    assert convolutions == 14_714_688 and f"{convolutions:,}" in VGG16.__doc__
    # Means and maxima of the last 512 channels, and biases.
    assert VGG16(classes=5).count_params() - convolutions == 1024 * 5 + 5


def test_radial_network_of_46_filters_has_15_million_numbers():
    network = VGG16((64, 64, 3), 2, filters=46)
    model = bdl.convert(network, "radial")
    numbers = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    expected, inputs = 2 * 8 * 46 * 2 + 2, 3  # the classifier
    for convolutions, width in ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8)):
        for _ in range(convolutions):
            expected += (9 * inputs + 1) * 46 * width
            inputs = 46 * width
    assert numbers == 2 * expected
    assert round(numbers / 1e6) == 15


def test_classifier_reads_means_and_maxima_of_every_channel():
    x = np.random.default_rng(0).normal(size=(2, 64, 64, 1))
    model = VGG16((None, None, 1), 3, filters=2)
    features = VGG16((None, None, 1), filters=2, include_top=False)
    features.set_weights(model.get_weights()[:-2])
    y = np.asarray(features(x))
    assert y.shape == (2, 2, 2, 16)
    pools = np.concatenate([y.mean((1, 2)), y.max((1, 2))], axis=-1)
    head = model.get_layer("predictions")
    logits = pools @ head.kernel.numpy() + head.bias.numpy()
    np.testing.assert_allclose(model(x), logits, rtol=1e-4, atol=1e-5)


def test_network_for_small_images_has_norms_dense_layers_and_dropout():
    model = VGG16BN(filters=2, hidden_units=(5, 4), dropout_rate=0.2)
    kinds = [type(x).__name__ for x in model.layers]
    stages = [
        ["Conv2D", "BatchNormalization", "Activation"] * n + ["MaxPooling2D"]
        for n in (2, 2, 3, 3, 3)
    ]
    assert kinds == [
        "InputLayer",
        *sum(stages, []),
        "GlobalAveragePooling2D",
        *("Dropout", "Dense", "Dropout", "Dense", "Dense"),
    ]
    assert model.get_layer("stage5_pool").output.shape == (None, 1, 1, 16)
    dense = [x for x in model.layers if isinstance(x, keras.layers.Dense)]
    assert [x.units for x in dense] == [5, 4, 10]
    assert {model.get_layer(f"dropout{k}").rate for k in (1, 2)} == {0.2}


def test_dropout_may_be_left_to_the_conversion():
    network = VGG16BN((8, 8, 1), filters=1, dropout_rate=0.0)
    model = bdl.convert(network, "mc_dropout", rate=0.05)
    found = [x for x in model.layers if isinstance(x, bdl.layers.MCDropout)]
    assert len(found) == 16
    x = np.ones((2, 8, 8, 1))
    np.testing.assert_allclose(model(x), network(x), rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", (), ("avg", "sum")])
def test_wrong_pooling_is_refused(pooling):
    with pytest.raises(ValueError, match="`pooling` must be one of .*Received"):
        VGG16(pooling=pooling)
