import pickle

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_bdl as bdl
from keras_bdl._conversion import convert
from tests.models.networks import KINDS
from tests.models.networks import TOKENS
from tests.models.networks import Block
from tests.models.networks import X
from tests.models.networks import assert_same_outputs
from tests.models.networks import bayesian_layers
from tests.models.networks import functional
from tests.models.networks import reloaded
from tests.models.networks import sequential
from tests.models.networks import stack
from tests.models.networks import subclassed
from tests.models.networks import transformer
from tests.models.networks import values

# Each model with its input and its number of kernels and embeddings.
MODELS = {
    "sequential": (sequential, X, 2),
    "functional": (functional, {"a": X, "b": X}, 6),
    "subclassed": (subclassed, X, 13),
    "transformer": (transformer, TOKENS, 6),
}


def converted(model, kind):
    to = kind
    if kind == "mc_dropout" and layers.Embedding in map(type, model.layers):
        to = {layers.Embedding: None, layers.Layer: kind}
    return convert(model, to, **KINDS[kind])


@pytest.mark.parametrize(
    "name, kind",
    [
        ("sequential", "mean_field"),
        ("sequential", "radial"),
        ("functional", "mc_dropout"),
        ("subclassed", "mean_field"),
        ("subclassed", "mc_dropout"),
        ("transformer", "radial"),
    ],
)
def test_copy_has_equal_outputs_and_can_be_trained_and_saved(
    name, kind, tmp_path
):
    make, x, number = MODELS[name]
    model = make()
    model.compile("sgd", "mse")
    before = values(model), model.optimizer, model._flatten_layers()
    new = converted(model, kind)
    assert isinstance(new, (bdl.Model, bdl.Sequential))
    assert not new.compiled
    assert new.name == model.name
    assert_same_outputs(new, model, x)
    assert len(bayesian_layers(new)) == number
    assert {id(x) for x in new._flatten_layers()}.isdisjoint(
        id(x) for x in model._flatten_layers()
    )

    new.compile("adam", "mse", run_eagerly=True)
    targets = keras.tree.map_structure(np.zeros_like, new(x))
    logs = new.fit(x, targets, verbose=0).history
    assert np.isfinite(logs["loss"]).all()
    assert kind == "mc_dropout" or logs["kl"][0] > 0
    for a, b in zip(values(model), before[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.optimizer is before[1]
    assert model._flatten_layers() == before[2]

    loaded = reloaded(new, tmp_path)
    assert type(loaded) is type(new)
    assert len(bayesian_layers(loaded)) == number
    assert int(loaded.optimizer.iterations) == 1
    for a, b in zip(values(loaded), values(new), strict=True):
        np.testing.assert_array_equal(a, b)
    assert_same_outputs(loaded, new, x)


@pytest.mark.parametrize("kind", ["mean_field", "mc_dropout"])
def test_predictions_are_samples_and_batch_statistics_keep_updating(kind):
    model = sequential()
    new = convert(model, kind, **KINDS[kind])
    means = [np.array(x.layers[1].moving_mean) for x in (model, new)]
    np.testing.assert_array_equal(*means)
    new.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
    new.fit(X, np.arange(8) % 2, verbose=0)
    assert np.all(np.array(new.layers[1].moving_mean) != means[1])
    posterior = bdl.posteriors.MCDropout() if kind == "mc_dropout" else None
    prediction = bdl.predict(new, X, posterior, samples=4, verbose=0)
    assert prediction.mutual_information.max() > 0


def test_shared_layer_stays_shared():
    new = convert(functional(), "mean_field")
    shared = new.get_layer("shared")
    assert len(shared._inbound_nodes) == 2
    block = new.get_layer("value")
    assert block.first is block.same
    assert len({id(x) for x in new.trainable_weights}) == 26


@keras.saving.register_keras_serializable("test_convert")
class Tied(keras.Model):
    """A model with a layer that one of its models shares."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tied = layers.Dense(6, name="tied")
        self.stack = keras.Sequential([self.tied, layers.Dense(6, name="last")])

    def call(self, x):
        return self.stack(x) @ ops.transpose(self.tied.kernel)


@pytest.mark.parametrize("selector", ["tied", "last"])
def test_layer_in_two_places_stays_one_layer(selector):
    model = Tied()
    model(X)
    new = convert(model, {selector: "radial"})
    assert new.tied is new.stack.layers[0]
    assert_same_outputs(new, model, X)


@pytest.mark.parametrize("name", MODELS)
def test_copy_is_pickled_and_cloned(name):
    make, x, _ = MODELS[name]
    new = converted(make(), "radial")
    assert_same_outputs(pickle.loads(pickle.dumps(new)), new, x)
    clone = keras.models.clone_model(new)
    clone(x)
    clone.set_weights(new.get_weights())
    assert len(bayesian_layers(clone)) == len(bayesian_layers(new))
    assert_same_outputs(clone, new, x)


def test_layers_inside_of_layers_are_converted_in_two_steps(tmp_path):
    model = subclassed()
    first = convert(model, {layers.MultiHeadAttention: "mean_field"})
    is_dense = {lambda layer: type(layer) is layers.Dense: "radial"}
    second = convert(first, is_dense)
    assert type(second.attention.query_dense).__name__ == "MeanFieldEinsumDense"
    assert type(second.blocks[1].dense) is bdl.layers.RadialDense
    assert len(bayesian_layers(second)) == 13
    assert_same_outputs(second, model, X)
    assert_same_outputs(reloaded(second, tmp_path), model, X)


@pytest.mark.filterwarnings("ignore:The object being serialized includes a")
def test_functions_and_preprocessing_layers_are_copied():
    normalization = layers.Normalization()
    normalization.adapt(3 * X + 1)
    words = layers.TextVectorization(output_sequence_length=3)
    words.adapt(["a b c", "d e"])
    x, text = keras.Input((6,)), keras.Input((1,), dtype="string")
    a = layers.Rescaling(0.5)(normalization(x))
    a = layers.Dense(4, activation=lambda a: 2 * a)(ops.sin(a)[:, 1:])
    a = layers.Lambda(lambda a: a + 1)(layers.Activation(lambda a: a**2)(a))
    b = layers.Embedding(words.vocabulary_size(), 4)(words(text))
    bend, bend_too = layers.PReLU(), layers.PReLU()
    b = layers.Dense(4, activation=bend)(b)
    b = layers.GRU(3)(layers.Dense(4, activation=bend_too, name="plain")(b))
    model = keras.Model([x, text], ops.concatenate([a, b], axis=-1))
    inputs = [ops.convert_to_tensor(x) for x in (X[:2], [["a c"], ["e ?"]])]
    model(inputs)
    bend.alpha.assign(bend.alpha + 0.3)
    bend_too.alpha.assign(bend.alpha + 0.4)
    to = {"plain": None, layers.GRU: None, layers.Layer: "mean_field"}
    new = convert(model, to)
    assert_same_outputs(new, model, inputs)
    assert len(bayesian_layers(new)) == 3


def test_recurrent_layers_and_wrappers_can_be_left_out(tmp_path):
    left_out = (layers.Bidirectional, layers.TimeDistributed, layers.RNN)
    model = stack(
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.TimeDistributed(layers.Dense(4)),
        layers.GRU(3),
        layers.Dense(2),
        shape=(5, 6),
    )
    names = [layer.name for layer in model.layers[:3]]
    with pytest.raises(ValueError, match=".*".join(["Received", *names])):
        convert(model, "mean_field", strict=True)
    x = np.repeat(X[:, None], 5, 1)
    new = convert(model, {**dict.fromkeys(left_out), layers.Layer: "radial"})
    assert [type(x) for x in bayesian_layers(new)] == [bdl.layers.RadialDense]
    assert_same_outputs(new, model, x)
    assert_same_outputs(reloaded(new, tmp_path), model, x)


@keras.saving.register_keras_serializable("test_convert")
class OwnCall(keras.Sequential):
    def call(self, x, training=None, mask=None):
        return 2 * super().call(x)


@keras.saving.register_keras_serializable("test_convert")
class Forgetful(Block):
    """A block whose config omits the number of layers."""

    def __init__(self, extra=0, **kwargs):
        super().__init__(6, **kwargs)
        self.extra = [layers.Dense(6) for _ in range(extra)]

    def call(self, x):
        for layer in self.extra:
            x = layer(x)
        return super().call(x)

    def get_config(self):
        return layers.Layer.get_config(self)


@keras.saving.register_keras_serializable("test_convert")
class Hiding(layers.Layer):
    """A layer that stores its inner layer where nothing can replace it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = {layers.Dense(6)}

    def call(self, x):
        return next(iter(self.hidden))(x)


@keras.saving.register_keras_serializable("test_convert")
class Unused(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.used, self.unused = layers.Dense(2), layers.Dense(2, name="new")

    def build(self, shape):
        self.used.build(shape)

    def call(self, x):
        return self.used(x)


class OwnDense(layers.Dense):
    pass


def one(layer):
    return lambda: stack(layer)


def own_call():
    return OwnCall([keras.Input((6,)), layers.Dense(2)])


def unused():
    model = Unused()
    model(X)
    return model


@pytest.mark.parametrize(
    "make, message",
    [
        (
            one(OwnDense(2, name="own")),
            "no rule converts.*Received: OwnDense: own",
        ),
        (one(bdl.layers.RadialDense(2)), "Received: RadialDense: radial_dense"),
        (
            one(layers.SpectralNormalization(layers.Dense(2))),
            "no rule converts",
        ),
        (
            lambda: OwnCall([keras.Input((6,)), layers.Dense(2)]),
            "with its own `call`",
        ),
        (one(Forgetful(2)), "must create all inner layers.*Forgetful"),
        (one(Hiding()), "An inner layer can be replaced only if.*Hiding"),
        (unused, "must select built layers.*Dense: new"),
    ],
)
def test_model_that_cannot_be_converted_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        convert(make(), "mean_field", strict=True)


def test_layers_without_a_rule_stay_and_the_summary_names_them(capsys):
    model = keras.Sequential(
        [
            keras.Input((5, 6)),
            OwnDense(4, name="own"),
            layers.LSTM(3, name="memory"),
            layers.Dense(3),
            layers.Dense(2),
        ]
    )
    copy = convert(model, "mean_field")
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    assert_same_outputs(copy, model, x)
    assert [type(layer).__name__ for layer in copy.layers] == [
        *("OwnDense", "LSTM", "MeanFieldDense", "MeanFieldDense")
    ]
    assert capsys.readouterr().out.splitlines() == [
        "Converted to mean_field: 2 Dense",
        "Unchanged, no rule converts: OwnDense: own; LSTM: memory",
    ]
    convert(model, "radial", verbose=0)
    assert not capsys.readouterr().out


class WithoutConfig(layers.Layer):
    def __init__(self, activation, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(4, activation=activation)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)


class Outer(layers.Layer):
    def build(self, shape):
        self.closed = WithoutConfig(abs, name="closed")
        self.closed.build(shape)
        self.dense = layers.Dense(4)
        self.dense.build(shape)

    def call(self, x):
        return self.closed(x) + self.dense(x)


def test_layers_in_a_block_without_a_config_stay_as_they_are(capsys):
    model = stack(Outer())
    with pytest.raises(ValueError, match="Received: WithoutConfig: closed"):
        convert(model, "mean_field", strict=True)
    left_out = {WithoutConfig: None, layers.Layer: "mean_field"}
    for to in ("mean_field", left_out):
        new = convert(model, to)
        assert type(new.layers[0].dense) is bdl.layers.MeanFieldDense
        assert type(new.layers[0].closed.dense) is layers.Dense
        assert_same_outputs(new, model, X)
    assert "converts: WithoutConfig: closed" in capsys.readouterr().out


class NormalizesOnly(layers.Layer):
    def __init__(self, activation, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization()

    def build(self, shape):
        self.norm.build(shape)

    def call(self, x):
        return self.norm(x)


class OuterNormalizes(layers.Layer):
    def build(self, shape):
        self.closed = NormalizesOnly(abs)
        self.closed.build(shape)
        self.dense = layers.Dense(4)
        self.dense.build(shape)

    def call(self, x):
        return self.dense(self.closed(x))


def test_strict_conversion_ignores_a_block_that_only_normalizes():
    new = convert(stack(OuterNormalizes()), "mean_field", strict=True)
    assert type(new.layers[0].dense) is bdl.layers.MeanFieldDense


class Bare(layers.Layer):
    """Its constructor takes no `**kwargs`, so its config has too much."""

    def __init__(self, width):
        super().__init__()
        self.dense = layers.Dense(width)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)


def test_block_whose_constructor_takes_no_other_arguments_is_converted():
    model = stack(Bare(4), layers.Dense(2))
    new = convert(model, "mean_field")
    assert type(new.layers[0].dense) is bdl.layers.MeanFieldDense
    assert_same_outputs(new, model, X)


def test_a_trained_adapter_that_stays_keeps_its_factors():
    model = stack(layers.Dense(4, lora_rank=2), layers.Dense(2))
    factors = [w for w in model.layers[0].weights if "lora" in w.name]
    for factor in factors:
        factor.assign(np.random.default_rng(0).normal(size=factor.shape))
    new = convert(model, {"lora": None, layers.Dense: "mean_field"})
    found = [w for w in new.layers[0].weights if "lora" in w.name]
    for old, copy in zip(factors, found, strict=True):
        np.testing.assert_array_equal(old, copy)
    assert_same_outputs(new, model, X)


class Patches(layers.Layer):
    """Its config has an entry that its constructor refuses."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units, self.dense = units, layers.Dense(units)

    def build(self, shape):
        self.token = self.add_weight((self.units,))
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x) + self.token

    def get_config(self):
        return {**super().get_config(), "units": self.units, "derived": 2}


def test_block_whose_config_has_too_many_entries_is_converted(tmp_path):
    model = stack(Patches(4), layers.Dense(2))
    new = convert(model, "mean_field")
    assert type(new.layers[0].dense) is bdl.layers.MeanFieldDense
    assert_same_outputs(new, model, X)
    with keras.saving.custom_object_scope({"Patches": Patches}):
        assert_same_outputs(reloaded(new, tmp_path), model, X)


def test_layer_outside_of_the_graph_is_refused_if_it_has_weights():
    inputs = keras.Input((6,))
    hidden = layers.Dense(3)(inputs)
    model = keras.Model(inputs, layers.Dense(2)(hidden))
    model.encoder = keras.Model(inputs, hidden)
    assert_same_outputs(convert(model, "radial"), model, X)
    model.lost = layers.Dense(2, name="lost")
    model.lost.build((None, 6))
    if model.lost not in model._flatten_layers():
        pytest.skip("This version of Keras does not count such a layer")
    with pytest.raises(
        ValueError, match="must use all its layers.*layer='lost'"
    ):
        convert(model, "radial")


def test_layer_that_is_not_used_can_be_left_out():
    new = convert(unused(), {"new": None, layers.Layer: "radial"})
    assert_same_outputs(new, new, X)
    assert type(new.unused) is layers.Dense


def application(name, **kwargs):
    keras.utils.set_random_seed(0)
    return getattr(keras.applications, name)(
        weights=None, input_shape=(32, 32, 3), classes=3, **kwargs
    )


IMAGES = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")


@pytest.mark.parametrize(
    "name, kind", [("EfficientNetB0", "radial"), ("ResNet50", "mc_dropout")]
)
def test_copy_of_a_keras_application_has_equal_outputs(name, kind):
    model = application(name)
    new = convert(model, kind, **KINDS[kind])
    assert_same_outputs(new, model, IMAGES)
    assert not any(
        type(layer) in (layers.Conv2D, layers.DepthwiseConv2D, layers.Dense)
        for layer in new.layers
    )


def test_copy_of_a_keras_application_can_be_trained_and_saved(tmp_path):
    model = application("MobileNetV2", alpha=0.35)
    new = convert(model, "mean_field", prior_from_weights=0.1)
    assert_same_outputs(new, model, IMAGES)
    new.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    logs = new.fit(IMAGES, np.arange(2), verbose=0).history
    assert np.isfinite(logs["loss"]).all()
    assert_same_outputs(reloaded(new, tmp_path), new, IMAGES)
