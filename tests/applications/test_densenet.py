import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.applications import DenseNet
from keras_bdl.applications._residual_network import IMAGENET


def test_network_is_the_composition_of_its_formulas():
    model = DenseNet((2, 1), (8, 8, 1), growth_rate=2, activation="softplus")
    rng = np.random.default_rng(0)
    model.set_weights([rng.uniform(0.5, 1.5, w.shape) for w in model.weights])
    x = rng.normal(size=(3, 8, 8, 1)).astype("float32")

    def conv(name, y):
        return tf.nn.conv2d(y, model.get_layer(name).kernel, 1, "SAME")

    def active(name, y):
        norm = model.get_layer(f"{name}_norm")
        y = (y - norm.moving_mean) / np.sqrt(norm.moving_variance + 1e-3)
        return tf.nn.softplus(y * norm.gamma + norm.beta)

    def add(name, y):
        new = conv(f"{name}_conv1", active(f"{name}_1", y))
        new = conv(f"{name}_conv2", active(f"{name}_2", new))
        return tf.concat([y, new], -1)

    y = add("block1_layer2", add("block1_layer1", conv("stem_conv", x)))
    assert y.shape[-1] == 4 + 2 + 2
    y = conv("transition1_conv", active("transition1", y))
    y = tf.nn.avg_pool2d(y, 2, 2, "VALID")
    assert y.shape[1:] == (4, 4, 4)
    y = active("last", add("block2_layer1", y))
    head = model.get_layer("predictions")
    logits = tf.reduce_mean(y, axis=(1, 2)) @ head.kernel + head.bias
    np.testing.assert_allclose(model(x), logits, rtol=1e-4)


def test_stem_for_imagenet_leaves_a_sixteenth_of_the_pixels():
    model = DenseNet((1, 1), (64, 32, 3), growth_rate=1, stem=IMAGENET)
    names = ["stem_conv", "stem_norm", "stem_activation", "stem_pool"]
    assert [x.name for x in model.layers[1:5]] == names
    assert model.get_layer("stem_pool").output.shape == (None, 16, 8, 2)
    assert model.get_layer("last_norm").output.shape[1:3] == (8, 4)


def test_features_of_earlier_layers_keep_their_channels():
    model = DenseNet((1, 1), (8, 8, 3), compression=1.0, include_top=False)
    assert model.output_shape == (None, 4, 4, 24 + 12 + 12)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"blocks": 121},
            "layers of each block.* Received: blocks of type int",
        ),
        ({"blocks": ()}, r"layers of each block, .* Received: blocks=\(\)"),
        ({"blocks": (6, 0)}, r"`blocks\[1\]` must be a positive integer.*=0"),
        ({"compression": 0.0}, "`compression` must be .* compression=0.0"),
        ({"compression": 2}, "`compression` must be .* compression=2"),
    ],
    ids=str,
)
def test_wrong_argument_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DenseNet(**{"blocks": (1, 1), **arguments})
