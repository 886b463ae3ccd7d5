import re

import keras
import numpy as np
import pytest
import scipy.special
from keras import layers

import keras_bdl as bdl
from keras_bdl._conversion import convert
from keras_bdl.layers import MCDropout
from keras_bdl.layers import MeanFieldDense
from keras_bdl.layers import RadialDense
from keras_bdl.priors import Laplace
from keras_bdl.priors import Normal
from tests.helpers import dtype_policy
from tests.models.networks import KINDS
from tests.models.networks import X
from tests.models.networks import assert_same_outputs
from tests.models.networks import bayesian_layers
from tests.models.networks import randomized
from tests.models.networks import reloaded
from tests.models.networks import sequential
from tests.models.networks import stack
from tests.models.networks import transformer

IMAGES = np.random.default_rng(0).normal(size=(8, 6, 6, 4)).astype("float32")
# Each layer with non-default arguments and an input.
LAYERS = {
    "Dense": (
        layers.Dense(3, "tanh", kernel_regularizer="l2", use_bias=False),
        X,
    ),
    "EinsumDense": (
        layers.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d"),
        IMAGES[:, 0],
    ),
    "Conv1D": (layers.Conv1D(4, 3, dilation_rate=2, groups=2), IMAGES[:, 0]),
    "Conv2D": (
        layers.Conv2D(4, (3, 2), strides=2, padding="same", name="conv"),
        IMAGES,
    ),
    "Conv3D": (
        layers.Conv3D(2, 2, bias_constraint="non_neg"),
        IMAGES[:, None].repeat(2, 1),
    ),
    "Conv2DTranspose": (layers.Conv2DTranspose(3, 3, strides=2), IMAGES),
    "DepthwiseConv2D": (
        layers.DepthwiseConv2D(3, depth_multiplier=2, trainable=False),
        IMAGES,
    ),
}
WITHOUT_A_NAMESAKE = [
    (layers.Conv1DTranspose(2, 2), (6, 4)),
    (layers.DepthwiseConv1D(2), (6, 4)),
    (layers.SeparableConv1D(2, 2), (6, 4)),
    (layers.SeparableConv2D(2, 2), (6, 6, 4)),
    (layers.Conv3DTranspose(2, 2), (2, 6, 6, 4)),
    (bdl.layers.WeightNormDense(2), (4,)),
    (bdl.layers.WeightNormConv2D(2, 2), (6, 6, 4)),
]
# The new class of `Dense`.
PLAIN, NORMAL, RADIAL, DROPOUT = (
    layers.Dense,
    MeanFieldDense,
    RadialDense,
    MCDropout,
)


def three_layers():
    """Returns layers named `a`, `b`, which is inside `inner`, and `c`."""
    inner = keras.Sequential([layers.Dense(5, name="b")], name="inner")
    return stack(layers.Dense(5, name="a"), inner, layers.Dense(2, name="c"))


def a_b_c(model):
    return [model.layers[0], model.layers[1].layers[0], model.layers[2]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
def test_converted_layer_keeps_all_arguments(name, kind):
    layer, x = LAYERS[name]
    model = stack(layer, shape=x.shape[1:])
    new = convert(model, kind, **KINDS[kind]).layers[0]
    config = layer.get_config()
    if kind == "mc_dropout":
        assert type(new) is MCDropout
        assert new.layer.get_config() == config
    else:
        prefix = {"mean_field": "MeanField", "radial": "Radial"}[kind]
        assert type(new).__name__ == prefix + name
        assert config.items() <= new.get_config().items()
    assert (new.name, new.trainable) == (layer.name, layer.trainable)
    np.testing.assert_allclose(new(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer, shape", WITHOUT_A_NAMESAKE)
def test_mc_dropout_wraps_layers_without_a_variational_form(layer, shape):
    model = stack(layer, shape=shape)
    with pytest.raises(ValueError, match=f"Received: .*: {layer.name}$"):
        convert(model, "mean_field")
    new = convert(model, "mc_dropout", rate=0.2)
    assert [type(x) for x in new.layers] == [MCDropout]
    assert_same_outputs(new, model, np.ones((2, *shape), "float32"))


@pytest.mark.parametrize(
    "to, expected",
    [
        ("radial", [RADIAL, RADIAL, RADIAL]),
        ({layers.Dense: "radial"}, [RADIAL, RADIAL, RADIAL]),
        ({"inner": "mean_field"}, [PLAIN, NORMAL, PLAIN]),
        ({"b": "mc_dropout", "c": "radial"}, [PLAIN, DROPOUT, RADIAL]),
        ({"a": "radial", PLAIN: "mean_field"}, [RADIAL, NORMAL, NORMAL]),
        ({"inner": None, PLAIN: "radial"}, [RADIAL, PLAIN, RADIAL]),
        ({"b": "radial", "inner": None}, [PLAIN, RADIAL, PLAIN]),
        ({lambda x: x.name > "b": "radial"}, [PLAIN, RADIAL, RADIAL]),
    ],
)
def test_first_matching_selector_decides(to, expected):
    model = three_layers()
    rate = 0.1 if DROPOUT in expected else None
    new = convert(model, to, rate=rate)
    assert [type(layer) for layer in a_b_c(new)] == expected
    assert [layer.name for layer in a_b_c(new)] == ["a", "b", "c"]
    assert_same_outputs(new, model, X)


def test_layer_of_the_model_is_a_selector():
    model = three_layers()
    new = convert(model, {model.layers[2]: "radial"})
    assert [type(layer) for layer in a_b_c(new)] == [PLAIN, PLAIN, RADIAL]


def test_second_conversion_keeps_the_layers_of_the_first():
    model = three_layers()
    options = {"estimator": "flipout", "prior_from_weights": 0.2}
    first = convert(model, {"a": "mean_field"}, **options)
    randomized(first)
    second = convert(first, {"b": "mc_dropout", "c": "radial"}, rate=0.1)
    a, b, c = a_b_c(second)
    assert [type(layer) for layer in (a, b, c)] == [NORMAL, DROPOUT, RADIAL]
    assert a.estimator == "flipout"
    for old, new in zip(first.layers[0].weights, a.weights, strict=True):
        np.testing.assert_array_equal(old, new)
    assert c.estimator == "weight"
    assert_same_outputs(second, first, X)


def test_each_layer_gets_only_its_own_options():
    to = {"a": "mean_field", "b": "radial", "c": "mc_dropout"}
    new = convert(
        three_layers(),
        to,
        prior=Laplace(0.3),
        bias_prior=Normal(2.0),
        rate=0.3,
        estimator="flipout",
        rho_initializer=keras.initializers.Constant(-2.0),
        dataset_size=77,
        truncation=1.5,
    )
    a, b, c = a_b_c(new)
    for layer in (a, b):
        assert type(layer.prior) is Laplace
        assert layer.prior.scale == 0.3
        assert layer.bias_prior.stddev == 2.0
        assert layer.estimator == "flipout"
        assert layer.dataset_size.given == 77
        assert np.unique(layer.kernel_rho) == [-2.0]
    assert a.truncation == 1.5
    assert c.rate == 0.3


def test_bias_stays_a_weight_if_it_is_not_variational():
    model = sequential()
    new = convert(model, "radial", variational_bias=False)
    assert list(new.layers[0].posteriors) == ["kernel"]
    np.testing.assert_array_equal(new.layers[0].bias, model.layers[0].bias)
    assert_same_outputs(new, model, X)


@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_draws_other_noise_from_the_seed(kind):
    dense = [layers.Dense(6, use_bias=False) for _ in range(2)]
    model = stack(*dense)
    dense[1].kernel.assign(dense[0].kernel)
    options = {} if kind == "mc_dropout" else {"dataset_size": 1}

    def outputs(seed):
        new = convert(model, kind, seed=seed, **KINDS[kind], **options)
        return [np.array(x(X, training=True)) for x in new.layers]

    first, again, other = outputs(3), outputs(3), outputs(4)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])


def test_means_from_weights_false_initialises_only_converted_layers():
    model = sequential()
    new = convert(model, {"dense": "radial"}, means_from_weights=False)
    assert not np.any(new.layers[0].bias_mean)
    assert np.array(new.layers[0].kernel_mean).min() < 0
    for old, kept in zip(model.layers[1:], new.layers[1:], strict=True):
        for a, b in zip(old.weights, kept.weights, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["mean_field", "radial"])
def test_prior_from_weights_is_a_gaussian_around_the_weights(kind, tmp_path):
    model = stack(layers.Dense(3))
    kernel = np.array(model.layers[0].kernel) - 0.5
    kernel[0, 0] = 0.0
    model.layers[0].kernel.assign(kernel)
    layer = convert(model, kind, prior_from_weights=0.3).layers[0]
    stddev = np.maximum(0.3 * np.abs(kernel), 1e-4)
    width = {"mean_field": 1.0, "radial": np.sqrt(18)}[kind]
    q = layer.posteriors["kernel"]
    np.testing.assert_array_equal(q.mean, kernel)
    np.testing.assert_allclose(q.stddev, stddev * width, rtol=1e-5)
    np.testing.assert_array_equal(layer.kernel_prior_mean, kernel)
    np.testing.assert_allclose(layer.kernel_prior_stddev, stddev, rtol=1e-5)
    np.testing.assert_allclose(
        layer.bias_prior_stddev, 0.3 * np.array(model.layers[0].bias), rtol=1e-5
    )
    # The sum over the 18 weights of the kernel and the 3 of the bias.
    expected = (
        0.0 if kind == "mean_field" else radial_excess(18) + radial_excess(3)
    )
    np.testing.assert_allclose(layer.kl_divergence(), expected, atol=1e-4)


def radial_excess(d):
    """Returns the KL to the Gaussian with the same variances, exactly."""
    log_area = np.log(2) + d / 2 * np.log(np.pi) - scipy.special.gammaln(d / 2)
    entropy = np.log(2) - np.log(2 * np.pi) / 2 - 0.5 - log_area
    entropy += (d - 1) * (np.euler_gamma + np.log(2)) / 2
    return entropy - d / 2 * np.log(d) + d / 2 * (np.log(2 * np.pi) + 1)


def test_prior_from_weights_keeps_the_bias_prior():
    layer = convert(
        stack(layers.Dense(3)),
        "mean_field",
        prior_from_weights=0.3,
        bias_prior=Laplace(2.0),
        rho_initializer=keras.initializers.Constant(-2.0),
    ).layers[0]
    assert layer.bias_prior.scale == 2.0
    assert not hasattr(layer, "bias_prior_mean")
    np.testing.assert_array_equal(layer.bias_rho, [-2.0] * 3)
    assert layer.kernel_prior_mean.shape == (6, 3)


def test_prior_from_weights_is_saved(tmp_path):
    new = convert(transformer(), "mean_field", prior_from_weights=0.3)
    loaded = reloaded(new, tmp_path)
    kls = [
        [x.kl_divergence() for x in bayesian_layers(model)]
        for model in (new, loaded)
    ]
    np.testing.assert_allclose(kls[0], 0, atol=1e-3)
    np.testing.assert_array_equal(kls[0], kls[1])
    np.testing.assert_array_equal(
        loaded.get_layer("tokens").embeddings_prior_mean,
        loaded.get_layer("tokens").embeddings,
    )


def test_frozen_layers_stay_frozen():
    model = three_layers()
    model.layers[0].trainable = model.layers[1].trainable = False
    new = convert(model, "mean_field")
    c = new.layers[2]
    assert [w.path for w in new.trainable_weights] == [
        w.path for w in (c.kernel_mean, c.kernel_rho, c.bias_mean, c.bias_rho)
    ]
    assert [x.trainable for x in new.layers] == [False, False, True]
    model.trainable = False
    assert not convert(model, "mean_field").trainable


def test_regularizers_and_constraints_apply_to_the_means():
    layer = layers.Dense(
        2, kernel_regularizer="l2", bias_constraint=keras.constraints.NonNeg()
    )
    model = stack(layer)
    new = convert(model, "radial")
    np.testing.assert_allclose(new.losses, model.losses)
    assert type(new.layers[0].bias_mean.constraint) is keras.constraints.NonNeg
    assert new.layers[0].bias_rho.constraint is None


def test_precision_of_layers_and_model_is_kept():
    with dtype_policy("mixed_float16"):
        model = sequential()
        inputs = keras.Input((6,))
        half = layers.Dense(2)(inputs)
        whole = keras.Model(inputs, layers.Dense(2, dtype="float32")(half))
    for made in (model, whole):
        for kind in KINDS:
            new = convert(made, kind, **KINDS[kind])
            assert [x.dtype_policy.name for x in new.layers[-2:]] == [
                x.dtype_policy.name for x in made.layers[-2:]
            ]
            new.compile("sgd", "mse")
            assert type(new.optimizer) is keras.optimizers.LossScaleOptimizer
            assert new(X).dtype == made(X).dtype


def bad(**kwargs):
    return lambda: convert(three_layers(), **{"to": "mean_field", **kwargs})


@pytest.mark.parametrize(
    "call, message",
    [
        (bad(to="gaussian"), "`to` must be one of .*Received: 'gaussian'"),
        (bad(to="meanfield"), 'Did you mean "mean_field".*meanfield'),
        (bad(estimater="local"), 'Did you mean "estimator"'),
        (bad(to=None), "`to` must be one of .*Received: None"),
        (bad(to={"a": 3}), "`to` must be one of .*Received: 3"),
        (bad(to={"a": None}), "`to` must convert at least one layer"),
        (bad(to={}), "`to` must convert at least one layer"),
        (bad(to={7: "radial"}), "A selector in `to` must be .*Received: 7"),
        (
            bad(to={"d": "radial"}),
            "The model has Dense: a, b, c;.*Received: 'd'",
        ),
        (
            bad(to={PLAIN: "radial", "b": "mean_field"}),
            "that earlier selectors did not match .*Received: 'b'",
        ),
        (bad(units=3), "`units` is no option .*Received: units=3"),
        (bad(rate=0.1), "`rate` is no option .*Received: rate=0.1"),
        (bad(to="radial", truncation=2.0), "Received: truncation=2.0"),
        (bad(to="mc_dropout", rate=0.1, prior=Normal(1.0)), "Received: prior="),
        (bad(to="mc_dropout"), "needs a `rate`"),
        (bad(estimator="none"), "`estimator` must be one of"),
        (
            bad(prior_from_weights=0.0),
            "`prior_from_weights` must be a number above",
        ),
        (
            bad(to="mc_dropout", rate=0.1, prior_from_weights=0.1),
            '`prior_from_weights` needs `"mean_field"`',
        ),
        (
            bad(prior=Normal(1.0), prior_from_weights=0.1),
            "Give one of the two",
        ),
        (
            bad(means_from_weights=False, prior_from_weights=0.1),
            "needs `means_from_weights=True`",
        ),
        (lambda: convert("model", "radial"), "`model` must be a Keras model"),
        (
            lambda: convert(keras.Sequential([layers.Dense(2)]), "radial"),
            "`model` gets its weights when it is built",
        ),
    ],
)
def test_bad_argument_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_error_names_all_unsupported_layers_and_its_advice_works():
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            layers.Embedding(5, 4),
            layers.Bidirectional(layers.LSTM(3)),
            layers.Dense(2),
        ]
    )
    with pytest.raises(ValueError, match="Embedding: .*Bidirectional: ") as e:
        convert(model, "mc_dropout", rate=0.1, strict=True)
    advice = re.search("`to=(.*?)`", str(e.value)).group(1)
    to = eval(advice, {"keras": keras})  # noqa: S307
    new = convert(model, to, rate=0.1)
    assert [type(x) for x in new.layers[-1:]] == [MCDropout]


def test_converted_model_on_a_generator_says_where_to_give_its_size():
    def batches():
        while True:
            yield np.ones((2, 3)), np.ones((2, 2))

    def fit(steps=None, **options):
        model = stack(layers.Dense(2), shape=(3,))
        new = convert(model, "mean_field", **options)
        new.compile("sgd", "mse")
        new.fit(batches(), steps_per_epoch=steps, verbose=0)

    with pytest.raises(ValueError, match=r"keras_bdl.convert\(..., dataset_s"):
        fit()
    fit(steps=1, dataset_size=10)


def test_quantised_model_is_refused_by_its_layer():
    model = three_layers()
    model.layers[-1].quantize("int8")
    message = (
        "`model` is quantised.*before you call `quantize`.*'c': None"
        ".*quantization_mode='int8'"
    )
    with pytest.raises(ValueError, match=message):
        convert(model, "mean_field", verbose=0)
    copy = convert(model, {"c": None, PLAIN: "mean_field"}, verbose=0)
    assert copy.layers[-1].quantization_mode == "int8"
