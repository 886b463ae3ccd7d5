import keras
import numpy as np
import pytest
from keras import layers

from keras_bdl.layers import WeightNormConv2D
from keras_bdl.layers import WeightNormDense
from tests.curvature.brute_force import check

EXAMPLES = 6

# By type, the shape of an input and the layers that are called on it.
CASES = {
    "dense": (
        (5,),
        lambda: [
            layers.Dense(4, "tanh"),
            layers.Dense(3, use_bias=False),
            layers.Dense(3, activation=layers.LeakyReLU()),
        ],
    ),
    "dense on sequences": (
        (4, 3, 5),
        lambda: [
            layers.Dense(4, "gelu"),
            layers.Dense(3, use_bias=False),
        ],
    ),
    "einsum dense": (
        (4, 5),
        lambda: [
            layers.EinsumDense("abc,cd->abd", (4, 3), bias_axes="d"),
            layers.EinsumDense("...x,xy->...y", 3, activation="tanh"),
            layers.EinsumDense("abc,cde->abde", (4, 2, 3), bias_axes="de"),
            layers.EinsumDense("abc,bcd->ad", 3, bias_axes="d"),
            layers.EinsumDense("abc,cd->abd", (4, 3), bias_axes="bd"),
            layers.EinsumDense("abc,dc->adb", (3, 4), bias_axes="d"),
            layers.EinsumDense("abc,bcd->abd", (4, 3), bias_axes="b"),
            layers.EinsumDense("abc,cbd->adb", (3, 4)),
            layers.EinsumDense("abc,bd->ad", 3),
        ],
    ),
    "einsum dense with positions in another order": (
        (2, 3, 5),
        lambda: [
            layers.EinsumDense("abcd,de->acbe", (3, 2, 4), bias_axes="e"),
            layers.EinsumDense("abcd,bde->aceb", (3, 4, 2)),
        ],
    ),
    "conv 1d": (
        (9, 4),
        lambda: [
            layers.Conv1D(3, 3, strides=2, padding="same"),
            layers.Conv1D(3, 2, dilation_rate=3, padding="causal"),
            layers.Conv1D(3, 3, strides=2, padding="causal", activation="tanh"),
            layers.Conv1D(4, 3, groups=2, use_bias=False),
            layers.Conv1D(3, 9),
        ],
    ),
    "conv 2d": (
        (7, 8, 4),
        lambda: [
            layers.Conv2D(3, 3, activation="tanh"),
            layers.Conv2D(3, 3, padding="same", use_bias=False),
            layers.Conv2D(3, 3, strides=2, padding="same"),
            layers.Conv2D(3, (3, 2), strides=(2, 3)),
            layers.Conv2D(3, 1, strides=2, padding="same"),
            layers.Conv2D(3, 5, strides=3, padding="same"),
            layers.Conv2D(3, 2, strides=3),
            layers.Conv2D(3, (2, 4), padding="same"),
            layers.Conv2D(3, 3, dilation_rate=2, padding="same"),
            layers.Conv2D(3, 3, dilation_rate=(2, 1)),
            layers.Conv2D(3, 1),
            layers.Conv2D(3, (7, 8)),
            layers.Conv2D(4, 3, groups=2, strides=2, padding="same"),
            layers.Conv2D(4, (7, 8), groups=2),
        ],
    ),
    "conv 2d on large images": (
        (32, 34, 8),
        lambda: [
            layers.Conv2D(2, 3, padding="same"),
            layers.Conv2D(2, (2, 3), dilation_rate=(3, 1), use_bias=False),
            layers.Conv2D(2, (3, 1), dilation_rate=(1, 2), groups=1),
        ],
    ),
    "conv 3d": (
        (4, 5, 3, 2),
        lambda: [
            layers.Conv3D(3, 2, padding="same", activation="tanh"),
            layers.Conv3D(3, (3, 2, 1), strides=2, use_bias=False),
        ],
    ),
    "conv 1d transpose": (
        (5, 3),
        lambda: [
            layers.Conv1DTranspose(2, 3, strides=2, padding="same"),
            layers.Conv1DTranspose(2, 3, strides=2, use_bias=False),
        ],
    ),
    "conv 2d transpose": (
        (4, 5, 3),
        lambda: [
            layers.Conv2DTranspose(2, 3, activation="tanh"),
            layers.Conv2DTranspose(2, 3, strides=2, padding="same"),
            layers.Conv2DTranspose(2, (2, 3), strides=(3, 2), use_bias=False),
            layers.Conv2DTranspose(2, 3, strides=2, output_padding=1),
            layers.Conv2DTranspose(
                2, 3, strides=2, padding="same", output_padding=0
            ),
        ],
    ),
    "conv 3d transpose": (
        (2, 3, 2, 2),
        lambda: [
            layers.Conv3DTranspose(2, 2, strides=2, padding="same"),
        ],
    ),
    "depthwise conv 1d": (
        (9, 3),
        lambda: [
            layers.DepthwiseConv1D(3, padding="same", depth_multiplier=2),
            layers.DepthwiseConv1D(3, strides=2, use_bias=False),
        ],
    ),
    "depthwise conv 2d": (
        (7, 8, 3),
        lambda: [
            layers.DepthwiseConv2D(3, depth_multiplier=2, activation="tanh"),
            layers.DepthwiseConv2D(3, strides=2, padding="same"),
            layers.DepthwiseConv2D((2, 3), dilation_rate=2, use_bias=False),
        ],
    ),
    "separable conv 1d": (
        (9, 3),
        lambda: [
            layers.SeparableConv1D(4, 3, padding="same", activation="tanh"),
            layers.SeparableConv1D(4, 3, strides=2, use_bias=False),
        ],
    ),
    "separable conv 2d": (
        (7, 8, 3),
        lambda: [
            layers.SeparableConv2D(4, 3, depth_multiplier=2, padding="same"),
            layers.SeparableConv2D(4, 3, strides=2),
            layers.SeparableConv2D(4, (2, 3), dilation_rate=2, use_bias=False),
        ],
    ),
    "layer normalization": (
        (4, 3, 5),
        lambda: [
            layers.LayerNormalization(),
            layers.LayerNormalization(axis=[2, 3], center=False),
            layers.LayerNormalization(axis=1, scale=False),
        ],
    ),
    "group normalization": (
        (4, 3, 6),
        lambda: [
            layers.GroupNormalization(2),
            layers.GroupNormalization(-1, center=False),
            layers.GroupNormalization(3, axis=2, scale=False),
        ],
    ),
    "rms normalization": (
        (4, 5),
        lambda: [
            layers.RMSNormalization(),
            layers.RMSNormalization(axis=[1, 2]),
        ],
    ),
    "prelu": (
        (4, 3, 5),
        lambda: [
            layers.PReLU(),
            layers.PReLU(shared_axes=[1, 2]),
            layers.PReLU(shared_axes=[1, 2, 3]),
        ],
    ),
    "weight-normalised dense": (
        (3, 5),
        lambda: [
            WeightNormDense(4, activation="tanh"),
            WeightNormDense(3, use_bias=False),
        ],
    ),
    "weight-normalised dense, one position": (
        (5,),
        lambda: [
            WeightNormDense(4),
            WeightNormDense(3, use_bias=False),
        ],
    ),
    "weight-normalised conv 2d": (
        (7, 8, 4),
        lambda: [
            WeightNormConv2D(3, 3, strides=2, padding="same"),
            WeightNormConv2D(4, 3, groups=2, use_bias=False),
            WeightNormConv2D(3, (7, 8)),
        ],
    ),
}


def perturb(model):
    """Moves weights away from zeros and ones."""
    rng = np.random.default_rng(1)
    for v in model.trainable_variables:
        v.assign(v + 0.3 * rng.normal(size=v.shape))


def side_by_side(shape, make_layers, dtype=None):
    """All layers on the same input, and their outputs side by side."""

    def make():
        inputs = keras.Input(shape, dtype=dtype)
        outputs = [layers.Flatten()(layer(inputs)) for layer in make_layers()]
        output = layers.Concatenate()(outputs) if outputs[1:] else outputs[0]
        model = keras.Model(inputs, output)
        model.compile(loss="mse")
        return model

    return make


@pytest.mark.parametrize("case", CASES)
def test_second_moments_of_a_layer_equal_a_loop(case):
    shape, make_layers = CASES[case]
    make = side_by_side(shape, make_layers)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(EXAMPLES, *shape)).astype("float32")
    model = make()
    perturb(model)
    y = rng.normal(size=(EXAMPLES, *model.output_shape[1:])).astype("float32")

    def made():
        made = make()
        made.set_weights(model.get_weights())
        return made

    check(made, x, y)
