import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from keras_bdl.extend import GroupLaplace
from keras_bdl.layers import WeightNormConv2D
from keras_bdl.layers import WeightNormDense
from keras_bdl.priors import Laplace
from keras_bdl.priors import Normal

IMAGES = (2, 9, 8, 4)
# Each layer with the shape of its input.
DENSE = (WeightNormDense, keras.layers.Dense)
CONV = (WeightNormConv2D, keras.layers.Conv2D)
CASES = {
    "dense": (DENSE, (3, 5), {"units": 4}),
    "dense of sequences": (
        DENSE,
        (3, 6, 5),
        {"units": 4, "activation": "tanh", "use_bias": False},
    ),
    "strides": (
        CONV,
        IMAGES,
        {
            "filters": 6,
            "kernel_size": (3, 2),
            "strides": (2, 1),
            "padding": "same",
        },
    ),
    "dilation": (
        CONV,
        IMAGES,
        {
            "filters": 6,
            "kernel_size": 3,
            "dilation_rate": (2, 1),
            "use_bias": False,
        },
    ),
    "groups": (
        CONV,
        IMAGES,
        {
            "filters": 6,
            "kernel_size": 3,
            "groups": 2,
            "activation": "selu",
        },
    ),
}


def randomized(layer, shape, seed=0):
    """Builds a layer and gives it weights far from the initial ones."""
    rng = np.random.default_rng(seed)
    layer.build(shape)
    layer.set_weights([rng.normal(0.2, 2.0, w.shape) for w in layer.weights])
    return layer


def formula(layer):
    """Returns the kernel of equation (1), feature by feature, in float64."""
    direction = layer.direction.numpy().astype("float64")
    return np.stack(
        [
            scale * direction[..., i] / np.linalg.norm(direction[..., i])
            for i, scale in enumerate(layer.scale.numpy())
        ],
        axis=-1,
    )


def inputs_of(shape):
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize("case", CASES)
def test_output_equals_the_keras_layer_with_the_kernel(case):
    (ours, theirs), shape, arguments = CASES[case]
    layer = randomized(ours(**arguments), shape)
    keras_layer = theirs(**arguments)
    keras_layer.build(shape)
    others = [w.numpy() for w in layer.weights[2:]]
    keras_layer.set_weights([formula(layer), *others])
    x = inputs_of(shape)
    np.testing.assert_allclose(layer(x), keras_layer(x), rtol=1e-5, atol=1e-5)
    assert layer.compute_output_shape(shape) == tuple(layer(x).shape)


@pytest.mark.parametrize("case", ["dense", "groups"])
def test_gradient_is_orthogonal_to_every_direction(case):
    (ours, _), shape, arguments = CASES[case]
    layer = randomized(ours(**arguments), shape)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(layer(inputs_of(shape))))
    gradient = tape.gradient(loss, layer.direction.value).numpy()
    direction = layer.direction.numpy()
    axes = tuple(range(direction.ndim - 1))
    lengths = np.sqrt(
        np.sum(gradient**2, axis=axes) * np.sum(direction**2, axis=axes)
    )
    assert lengths.min() > 0.01
    cosines = np.sum(gradient * direction, axis=axes) / lengths
    np.testing.assert_allclose(cosines, 0, atol=1e-5)


@pytest.mark.parametrize("case", ["dense", "groups"])
def test_initial_weights_are_unit_directions_ones_and_zeros(case):
    (ours, _), shape, arguments = CASES[case]
    layer = ours(kernel_initializer="he_uniform", **arguments)
    layer.build(shape)
    names = [w.name for w in layer.weights]
    assert names == ["direction", "scale", "bias"]
    direction, scale, bias = layer.get_weights()
    axes = tuple(range(direction.ndim - 1))
    lengths = np.linalg.norm(direction.reshape(-1, len(scale)), axis=0)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)
    assert np.std(direction, axis=axes).min() > 0
    np.testing.assert_array_equal(scale, 1)
    np.testing.assert_array_equal(bias, 0)


def test_direction_of_zero_gives_zero_and_finite_gradients():
    layer = WeightNormDense(2, kernel_initializer="zeros", use_bias=False)
    with tf.GradientTape() as tape:
        outputs = layer(np.ones((1, 3), "float32"))
        loss = tf.reduce_sum(outputs)
    np.testing.assert_array_equal(outputs, 0)
    for gradient in tape.gradient(loss, [w.value for w in layer.weights]):
        assert np.isfinite(gradient).all()


def test_group_laplace_becomes_the_density_of_the_scales():
    # The length of a vector of d numbers is Gamma distributed. The sign of its
    # scale is positive or negative with probability 1/2.
    b, features, n = 0.5, 3, 7
    layer = WeightNormConv2D(
        features,
        2,
        groups=1,
        use_bias=False,
        scale_regularizer=GroupLaplace(b, dataset_size=n),
    )
    layer.build((1, 4, 4, 5))
    scale = np.array([0.3, -4.0, 11.0])
    layer.scale.assign(scale)
    log_density = scipy.stats.gamma.logpdf(np.abs(scale), 2 * 2 * 5, scale=b)
    expected = -np.sum(log_density - np.log(2)) / n
    assert float(sum(layer.losses)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        WeightNormDense(
            3,
            "tanh",
            use_bias=False,
            kernel_initializer="he_normal",
            scale_initializer=keras.initializers.Constant(0.5),
            direction_regularizer=Normal(0.5),
            scale_regularizer=GroupLaplace(5.0),
            name="head",
        ),
        WeightNormConv2D(
            6,
            (3, 2),
            strides=2,
            groups=2,
            padding="same",
            bias_constraint="non_neg",
            scale_initializer=keras.initializers.Constant(0.5),
            direction_regularizer="l2",
            scale_regularizer=Laplace(5.0),
        ),
    ],
    ids=["dense", "conv"],
)
def test_config_has_every_argument(layer):
    config = layer.get_config()
    assert config["scale_initializer"]["config"]["value"] == 0.5
    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(revived) is type(layer)
    assert revived.get_config() == config
    for name in ("direction_regularizer", "scale_regularizer"):
        given = getattr(layer, name)
        assert type(getattr(revived, name)) is type(given)
        assert getattr(revived, name).get_config() == given.get_config()


def test_saved_model_gives_the_same_outputs(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((6, 6, 4)),
            WeightNormConv2D(4, 3, groups=2, use_bias=False),
            keras.layers.Flatten(),
            WeightNormDense(3),
        ]
    )
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape) for w in model.weights])
    x = inputs_of((5, 6, 6, 4))
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(x), model(x))
    clone = keras.models.clone_model(model)
    clone.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(clone(x), model(x))


def test_mixed_precision_computes_the_norm_in_float32():
    layer = randomized(
        WeightNormConv2D(6, 3, dtype="mixed_bfloat16"), (1, 9, 9, 64)
    )
    assert {w.dtype for w in layer.weights} == {"float32"}
    expected = tf.cast(formula(layer).astype("float32"), "bfloat16")
    np.testing.assert_array_equal(
        tf.cast(layer.kernel, "float32"), tf.cast(expected, "float32")
    )
    assert layer(inputs_of((1, 9, 9, 64))).dtype == "bfloat16"


@pytest.mark.parametrize("layer_class", [WeightNormDense, WeightNormConv2D])
@pytest.mark.parametrize(
    "argument",
    [
        {"kernel_regularizer": "l2"},
        {"kernel_constraint": "unit_norm"},
        {"lora_rank": 2},
    ],
    ids=lambda argument: next(iter(argument)),
)
def test_argument_that_needs_a_kernel_variable_is_refused(
    layer_class, argument
):
    size = (4,) if layer_class is WeightNormDense else (4, 3)
    with pytest.raises(ValueError, match=f"`{next(iter(argument))}` needs a"):
        layer_class(*size, **argument)


def test_later_lora_and_quantization_are_refused():
    layer = randomized(WeightNormDense(4), (None, 3))
    with pytest.raises(ValueError, match="`lora_rank` needs a kernel that is"):
        layer.enable_lora(2)
    with pytest.raises(NotImplementedError, match="needs a kernel that is"):
        layer.quantize("int8")
    with pytest.raises(ValueError, match="`quantization_mode` needs a kernel"):
        WeightNormDense(4, dtype="int8_from_float32")


def test_kernel_before_the_first_call_says_what_to_do():
    with pytest.raises(
        AttributeError, match="Call the layer on an input first"
    ):
        _ = WeightNormDense(4).kernel
