"""The noise of Radial layers, seen in their outputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_bdl import layers
from tests.helpers import assert_moment

DRAWS = 3000
SHAPES = {"Dense": (3, 2), "Conv2D": (2, 2, 2, 3), "one weight": (1, 1)}


def noises(case):
    """Returns the noise of kernel and bias in units of their scales."""
    shape = SHAPES[case]
    common = {
        "kernel_initializer": "zeros",
        "rho_initializer": keras.initializers.RandomUniform(-1, 2, seed=0),
        "dataset_size": 1,
        "seed": 5,
    }
    if case == "Conv2D":
        layer = layers.RadialConv2D(shape[-1], shape[0], **common)
    else:
        layer = layers.RadialDense(shape[-1], **common)
    # An input with a single one shows the weights of that entry. The last
    # input is zero and shows the bias.
    size = int(np.prod(shape[:-1]))
    x = np.eye(size + 1, size, dtype="f").reshape(size + 1, *shape[:-1])
    layer.build(x.shape)

    @tf.function(autograph=False)
    def outputs():
        return tf.map_fn(
            lambda _: layer(x, training=True),
            tf.range(DRAWS),
            fn_output_signature="float32",
            parallel_iterations=1,
        )

    drawn = outputs().numpy().reshape(DRAWS, size + 1, shape[-1])
    bias = drawn[:, -1] / np.asarray(layer.posteriors["bias"].stddev)
    kernel = drawn[:, :-1] - drawn[:, -1:]
    scale = np.asarray(layer.posteriors["kernel"].stddev)
    kernel /= scale.reshape(size, -1)
    return kernel.reshape(DRAWS, -1), bias.reshape(DRAWS, -1)


@pytest.mark.parametrize("case", SHAPES)
def test_noise_has_half_normal_length_and_uniform_direction(case):
    tensors = noises(case)
    assert tensors[0].shape[1] == np.prod(SHAPES[case])
    for noise in tensors:
        size = noise.shape[1]
        length = np.linalg.norm(noise, axis=1)
        assert_moment(np.mean(length**2), 1.0, np.sqrt(2 / DRAWS))
        assert stats.kstest(length, stats.halfnorm.cdf).pvalue > 1e-6
        direction = noise / length[:, None]
        error = np.sqrt(1 / size / DRAWS)
        assert_moment(direction.mean(0), 0.0, error)
        # For each axis, and for each length.
        axis = np.random.default_rng(1).normal(size=size)
        cosine = direction @ axis / np.linalg.norm(axis)
        assert_moment(np.mean(cosine * length), 0.0, error)
        if size > 1:
            beta = stats.beta(0.5, (size - 1) / 2)
            assert stats.kstest(cosine**2, beta.cdf).pvalue > 1e-6
    lengths = [np.linalg.norm(noise, axis=1) for noise in tensors]
    assert abs(np.corrcoef(*lengths)[0, 1]) < 5 / np.sqrt(DRAWS)
