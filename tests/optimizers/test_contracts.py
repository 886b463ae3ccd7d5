"""Contracts that every optimizer keeps."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_bdl as bdl
from tests.helpers import arguments_of
from tests.helpers import assert_equal
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy

SAMPLERS = {
    "ATMC": bdl.ATMC,
    "ATMC with masses": functools.partial(bdl.ATMC, precondition_every=4),
    "SGHMC": bdl.SGHMC,
    "SGLD": bdl.SGLD,
    "SGNHT": bdl.SGNHT,
}
FITS = {
    "IVON": bdl.IVON,
    "KFAC": functools.partial(bdl.KFAC, update_every=3),
    "NoisyKFAC": functools.partial(
        bdl.NoisyKFAC, update_every=3, curvature_every=2
    ),
    "OGN": functools.partial(bdl.OGN, curvature_every=2),
    "VOGN": functools.partial(bdl.VOGN, curvature_every=2),
}
OPTIMIZERS = {**SAMPLERS, **FITS}
# KFAC and OGN run the steps of NoisyKFAC and VOGN at the means. SGNHT runs the
# step of ATMC with another number.
STEPS = [n for n in OPTIMIZERS if n not in ("KFAC", "OGN", "SGNHT")]
# One optimizer for each `update_step`. The checks are those of two bases.
DIFFERENT = ["ATMC", "SGLD", "IVON", "VOGN", "NoisyKFAC"]
# The files of VOGN and NoisyKFAC compare replicas with the equations, and
# samplers with momentum differ in one number.
REPLICAS = ["ATMC with masses", "SGLD", "IVON"]
CLASSES = [getattr(bdl.optimizers, name) for name in bdl.optimizers.__all__]

# No value is a default.
ARGUMENTS = {
    "augmentation_factor": 5.0,
    "average_speed": 1e-2,
    "beta_1": 0.5,
    "beta_2": 0.25,
    "clip_radius": 0.125,
    "curvature_every": 3,
    "damping": 0.25,
    "dataset_size": 9,
    "exclude_from_inference": ("bias",),
    "fallback": True,
    "friction": 0.5,
    "initial_curvature": 0.5,
    "initial_learning_rate": 0.25,
    "learning_rate": 0.5,
    "loss_scale_factor": 4.0,
    "max_speed": None,
    "name": "another_name",
    "precondition_end_step": 7,
    "precondition_every": 2,
    "prior": bdl.priors.Normal(0.5),
    "prior_precision": 2.0,
    "rescale_learning_rate": False,
    "gradient_accumulation_steps": 2,
    "seed": 4,
    "share_sample": False,
    "temperature": 0.25,
    "update_every": 4,
    "max_factor_size": 100,
}
OPTIONS = {
    "weight_decay": 0.1,
    "clipnorm": 1.0,
    "clipvalue": 1.0,
    "global_clipnorm": 1.0,
    "use_ema": True,
}

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype("float32")
Y = RNG.integers(0, 3, 12)
FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


@pytest.fixture(params=DIFFERENT)
def make(request):
    """Makes one of the optimizers."""
    return OPTIMIZERS[request.param]


def network(optimizer, model_class=bdl.Sequential, loss=None, **compile):
    """Weights in matrices, and weights that are in none."""
    model = model_class(
        [
            keras.Input((4,)),
            layers.Dense(2, use_bias=False),
            layers.LayerNormalization(center=False),
            layers.Dense(3),
        ]
    )
    model.compile(optimizer, loss or cross_entropy(), **compile)
    return model


def state(model):
    """All numbers that the next step depends on."""
    return [
        keras.ops.convert_to_numpy(v)
        for v in [*model.weights, *model.optimizer.variables]
    ]


@pytest.mark.parametrize("cls", CLASSES)
def test_config_keeps_every_argument(cls):
    defaults = arguments_of(cls)
    names = list(defaults)
    given = {name: ARGUMENTS[name] for name in names}
    assert all(given[name] != defaults[name] for name in names)
    optimizer = cls(**given)
    config = optimizer.get_config()
    assert set(names) <= set(config)
    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(optimizer)
    )
    assert type(revived) is cls
    assert revived.get_config() == config
    assert float(revived.learning_rate) == given.pop("learning_rate")
    if hasattr(revived, "accumulated_batches"):
        steps = given.pop("gradient_accumulation_steps")
        assert revived.accumulated_batches == steps
    for name, value in given.items():
        assert repr(getattr(revived, name)) == repr(value), name


@pytest.mark.parametrize("cls", CLASSES)
def test_name_is_that_of_the_class_unless_given(cls):
    words = cls().name.replace("_", "")
    assert words == cls.__name__.lower()
    assert cls(name="mine").name == "mine"


@pytest.mark.parametrize("cls", CLASSES)
def test_option_that_changes_the_posterior_is_refused(cls):
    for name, value in OPTIONS.items():
        with pytest.raises(ValueError, match=f"Received: .*{name}"):
            cls(**{name: value})


@pytest.mark.parametrize("make_fit", FITS.values(), ids=FITS)
def test_fit_refuses_a_factor_of_the_loss_and_a_temperature_of_zero(make_fit):
    with pytest.raises(ValueError, match="Received: .*loss_scale_factor"):
        make_fit(loss_scale_factor=2.0)
    with pytest.raises(ValueError, match="`temperature` must be .* above 0"):
        make_fit(temperature=0.0)


@pytest.mark.parametrize("make_sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_sampler_refuses_a_string_as_prior(make_sampler):
    with pytest.raises(ValueError, match="`prior` must be"):
        make_sampler(prior="normal")


@pytest.mark.parametrize("make_sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_sampler_moves_variables_of_tensorflow_as_those_of_keras(make_sampler):
    start = np.ones((3, 2), "float32")
    results = []
    for variable in (tf.Variable(start), keras.Variable(start)):
        sampler = make_sampler(1e-2, dataset_size=12, seed=3)
        for _ in range(5):
            sampler.apply_gradients([(tf.sin(variable), variable)])
        assert int(sampler.iterations) == 5
        results.append(keras.ops.convert_to_numpy(variable))
    assert np.abs(results[0] - start).min() > 0
    assert_equal(*results)


def test_sampler_names_a_variable_of_tensorflow_that_it_refuses():
    short = tf.Variable([1.0], dtype="bfloat16", name="short")
    with pytest.raises(ValueError, match="must be float32 .*short"):
        bdl.SGLD(dataset_size=12).apply_gradients([(short * 1.0, short)])


def test_table_of_tensorflow_has_the_prior_of_tables():
    sampler = bdl.SGLD(dataset_size=12)
    names = ("embeddings", "kernel")
    sampler.build([tf.Variable([[1.0]], name=name) for name in names])
    assert [p.stddev for p in sampler._priors] == [1.0, 8**0.5]


@pytest.mark.parametrize("make_fit", FITS.values(), ids=FITS)
def test_fit_refuses_gradients_of_a_variable_of_tensorflow(make_fit):
    variable = tf.Variable([1.0])
    with pytest.raises(ValueError, match="runs the training step itself"):
        make_fit(dataset_size=12).apply_gradients([(variable * 1.0, variable)])


def test_scale_loss_takes_a_plain_number(make):
    optimizer = make()
    # As in an optimizer of Keras.
    assert optimizer.scale_loss(1.5) == keras.optimizers.SGD().scale_loss(1.5)


@pytest.mark.parametrize("make_sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_scale_loss_of_a_sampler_refuses_a_list_of_numbers(make_sampler):
    with pytest.raises(ValueError, match=r"a loss of shape \(2,\)"):
        make_sampler().scale_loss([1.0, 2.0])


@pytest.mark.parametrize("name", STEPS)
def test_step_is_traced_once_and_a_resumed_run_ends_as_one_without_a_break(
    name, tmp_path, monkeypatch
):
    make = OPTIMIZERS[name]
    traced = []
    cls = type(make())
    update_step = cls.update_step

    def counted(self, gradient, variable, learning_rate):
        # Keras passes variables of its own or of TensorFlow.
        traced.append(getattr(variable, "path", variable.name))
        return update_step(self, gradient, variable, learning_rate)

    monkeypatch.setattr(cls, "update_step", counted)
    # N is counted, so that no config holds it.
    optimizer = make(
        keras.optimizers.schedules.CosineDecay(1e-2, 20),
        temperature=bdl.schedules.LinearRamp(0.5, 1.0, end_step=8),
        seed=5,
    )
    fits = isinstance(optimizer, bdl.extend.OwnsPosterior)
    samples = {"train_samples": 2, "samples": 2} if fits else {}
    whole = network(optimizer, steps_per_execution=3, **samples)
    validated = {"validation_data": (X, Y)} if fits else {}
    whole.fit(X, Y, epochs=2, **validated, **FIT)
    paths = list(traced)
    assert paths and len(paths) == len(set(paths))
    whole.save(tmp_path / "half.keras")
    resumed = keras.models.load_model(tmp_path / "half.keras")
    if fits:
        # The counted N is known without another step.
        posteriors = [m.optimizer.posterior(m) for m in (whole, resumed)]
        assert_equal(*(posterior.sample(3) for posterior in posteriors))
        assert resumed.evaluate(X, Y, verbose=0) == whole.evaluate(
            X, Y, verbose=0
        )
    whole.fit(X, Y, epochs=2, **validated, **FIT)
    assert traced == paths
    resumed.fit(X, Y, epochs=2, **FIT)
    assert_equal(state(resumed), state(whole))


def test_resumed_sampler_of_a_keras_model_ends_as_one_without_a_break(tmp_path):
    sampler = bdl.ATMC(1e-2, dataset_size=12, precondition_every=4, seed=5)
    whole = network(sampler, keras.Sequential)
    whole.fit(X, Y, epochs=2, **FIT)
    whole.save(tmp_path / "half.keras")
    resumed = keras.models.load_model(tmp_path / "half.keras")
    for model in (whole, resumed):
        model.fit(X, Y, epochs=2, **FIT)
    assert_equal(state(resumed), state(whole))


@pytest.mark.parametrize(
    "make_fit",
    [functools.partial(bdl.IVON, gradient_accumulation_steps=2), FITS["KFAC"]],
    ids=["IVON", "KFAC"],
)
def test_model_that_fit_builds_trains_like_one_with_an_input(make_fit):
    states = []
    for inputs in ([], [keras.Input((4,))]):
        dense = layers.Dense(3, kernel_initializer=keras.initializers.Ones())
        model = bdl.Sequential([*inputs, dense, layers.LayerNormalization()])
        model.compile(make_fit(0.1, seed=0), cross_entropy())
        model.fit(X, Y, **FIT)
        states.append(state(model))
    assert_equal(*states)


@pytest.mark.parametrize("name", REPLICAS)
def test_two_replicas_stay_equal(name, mirrored):
    with mirrored.scope():
        model = network(OPTIMIZERS[name](1e-2))
    start = model.get_weights()
    model.fit(X, Y, batch_size=6, epochs=2, verbose=0)
    for a, b in zip(model.get_weights(), start, strict=True):
        assert np.abs(a - b).max() > 0
    for v in [*model.trainable_variables, *model.optimizer.variables]:
        first, second = mirrored.experimental_local_results(v.value)
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_keeps_weights_and_state_in_float32(make, policy):
    # One case runs in a graph. Eager steps are faster for the others.
    eager = (make, policy) != (bdl.ATMC, "mixed_bfloat16")
    with dtype_policy(policy):
        # With other noise, a first gradient may overflow in float16.
        optimizer = make(1e-3, dataset_size=12, seed=0)
        model = network(optimizer, run_eagerly=eager)
    start = model.get_weights()
    model.train_on_batch(X, Y)
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    floats = [v for v in inner.variables if "float" in v.dtype]
    assert {v.dtype for v in [*model.weights, *floats]} == {"float32"}
    for a, b in zip(model.get_weights(), start, strict=True):
        assert np.isfinite(a).all() and np.abs(a - b).max() > 0


def test_weights_in_half_precision_are_refused(make):
    with dtype_policy("bfloat16"):
        model = network(make(1e-3, dataset_size=12), run_eagerly=True)
    with pytest.raises(ValueError, match="must be float32 or float64"):
        model.train_on_batch(X, Y)


def test_constraint_is_refused(make):
    layer = layers.Dense(3, kernel_constraint="non_neg")
    model = bdl.Sequential([keras.Input((4,)), layer])
    model.compile(make(dataset_size=12), cross_entropy(), run_eagerly=True)
    with pytest.raises(ValueError, match="no constraint.*kernel"):
        model.train_on_batch(X, Y)


def test_loss_that_is_a_sum_is_refused(make):
    loss = keras.losses.SparseCategoricalCrossentropy(True, reduction="sum")
    with pytest.raises(ValueError, match="reduction"):
        network(make(), loss=loss, run_eagerly=True).fit(X, Y, verbose=0)


def test_missing_number_of_examples_is_named(make):
    model = network(make(), run_eagerly=True)
    name = type(model.optimizer).__name__
    with pytest.raises(ValueError, match=rf"{name}\(..., dataset_size="):
        model.train_on_batch(X, Y)


@pytest.mark.parametrize("make_fit", FITS.values(), ids=FITS)
def test_model_of_keras_is_refused_by_a_fit(make_fit):
    model = network(make_fit(), keras.Sequential, run_eagerly=True)
    name = type(model.optimizer).__name__
    with pytest.raises(
        ValueError, match=f"`{name}` .* needs a `keras_bdl.Model`"
    ):
        model.train_on_batch(X, Y)
