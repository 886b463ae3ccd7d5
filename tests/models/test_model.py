import contextlib
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._models._model import functional_class
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy

X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")


def functional(model_class):
    inputs = keras.Input((4,))
    x = keras.layers.Dense(8, "relu", name="hidden")(inputs)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Dropout(0.3, seed=1, name="drop")(x)
    return model_class(inputs, keras.layers.Dense(2, name="head")(x))


def sequential(model_class):
    return model_class(
        [keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)]
    )


def own_call(model_class):
    class Own(model_class):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(8, "relu")
            self.head = keras.layers.Dense(2)

        def call(self, x):
            return self.head(self.hidden(x))

    return Own()


def functional_in_init(model_class):
    class InInit(model_class):
        def __init__(self, width, depth):
            inputs = keras.Input((4,))
            x = inputs
            for _ in range(depth):
                x = keras.layers.Dense(width)(x)
            super().__init__(inputs=inputs, outputs=keras.layers.Dense(2)(x))
            self.width, self.depth = width, depth

    return InInit(8, 1)


def functional_subclass(model_class):
    class Plain(model_class):
        pass

    return functional(Plain)


KINDS = {
    "functional": (functional, bdl.Model, keras.Model),
    "sequential": (sequential, bdl.Sequential, keras.Sequential),
    "own call": (own_call, bdl.Model, keras.Model),
    "functional in init": (functional_in_init, bdl.Model, keras.Model),
    "functional subclass": (functional_subclass, bdl.Model, keras.Model),
}


def train(make, model_class, fit=None, **compile):
    keras.utils.set_random_seed(3)
    model = make(model_class)
    model.compile(
        keras.optimizers.Adam(0.01),
        cross_entropy(),
        metrics=["accuracy"],
        **compile,
    )
    history = model.fit(
        X,
        Y,
        batch_size=16,
        epochs=2,
        verbose=0,
        validation_split=0.2,
        **(fit or {}),
    )
    return model, history.history


def assert_same_training(ours, theirs):
    assert ours[1] == theirs[1]
    for a, b in zip(ours[0].variables, theirs[0].variables, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(
        ours[0].optimizer.variables, theirs[0].optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(a, b)


# The other kinds differ only in how they are made.
@pytest.mark.parametrize("kind", ["functional", "sequential", "own call"])
def test_trains_bit_for_bit_like_keras(kind):
    make, ours, theirs = KINDS[kind]
    assert_same_training(train(make, ours), train(make, theirs))


@pytest.mark.parametrize(
    "options",
    [
        {"steps_per_execution": 2},
        {"jit_compile": True},
        {"fit": {"sample_weight": np.linspace(0, 2, 40)}},
    ],
    ids=lambda options: str(sorted(options)),
)
def test_options_train_bit_for_bit_like_keras(options):
    assert_same_training(
        train(functional, bdl.Model, **options),
        train(functional, keras.Model, **options),
    )


def test_mixed_precision_trains_bit_for_bit_like_keras():
    with dtype_policy("mixed_float16"):
        assert_same_training(
            train(functional, bdl.Model), train(functional, keras.Model)
        )


def test_several_inputs_and_outputs_train_bit_for_bit_like_keras():
    def fit(model_class):
        keras.utils.set_random_seed(3)
        a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
        x = keras.layers.Concatenate()([a, b])
        outputs = {
            "label": keras.layers.Dense(2, name="label")(x),
            "value": keras.layers.Dense(1, name="value")(x),
        }
        model = model_class({"a": a, "b": b}, outputs)
        model.compile(
            "adam",
            {"label": cross_entropy(), "value": "mse"},
            loss_weights={"label": 1.0, "value": 0.5},
        )
        history = model.fit(
            {"a": X, "b": X}, {"label": Y, "value": X[:, :1]}, verbose=0
        )
        return model, history.history

    assert_same_training(fit(bdl.Model), fit(keras.Model))


@pytest.mark.parametrize("first", KINDS)
def test_functional_and_subclassed_models_coexist_in_any_order(first):
    for kind in [first, *(k for k in KINDS if k != first)]:
        make, ours, _ = KINDS[kind]
        model = make(ours)
        assert model(X[:2]).shape == (2, 2)
        assert isinstance(model, ours)
    assert not issubclass(bdl.Model, functional_class())


def assert_same_state(a, b):
    for u, v in zip(
        [*a.weights, *a.optimizer.variables],
        [*b.weights, *b.optimizer.variables],
        strict=True,
    ):
        np.testing.assert_array_equal(u, v)


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_keras_file_restores_model_and_compile_state(kind, tmp_path):
    make, ours, _ = KINDS[kind]
    model, _ = train(make, ours, train_samples=2)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, ours)
    assert loaded.train_samples == 2
    assert int(loaded.optimizer.iterations) == 4
    assert_same_state(loaded, model)
    before = model.evaluate(X, Y, verbose=0)
    np.testing.assert_array_equal(loaded.evaluate(X, Y, verbose=0), before)


@keras.saving.register_keras_serializable(package="tests")
class Net(bdl.Model):
    def __init__(self, width, **kwargs):
        inputs = keras.Input((4,))
        x = keras.layers.Dense(width)(inputs)
        super().__init__(inputs=inputs, outputs=keras.layers.Dense(2)(x))
        self.width = width

    def get_config(self):
        return {"width": self.width}


def test_registered_subclass_that_is_functional_inside_is_loaded(tmp_path):
    keras.utils.set_random_seed(3)
    model = Net(6)
    model.compile("adam", cross_entropy())
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "net.keras")
    loaded = keras.models.load_model(tmp_path / "net.keras")
    assert isinstance(loaded, Net)
    assert_same_state(loaded, model)


def test_functional_subclass_with_its_own_constructor_is_cloned():
    class Own(bdl.Model):
        def __init__(self, inputs, outputs):
            super().__init__(inputs, outputs)

    model = functional(Own)
    model.compile("sgd", cross_entropy())
    assert keras.models.clone_model(model)(X[:2]).shape == (2, 2)


def test_functional_twin_is_hidden_from_its_parents():
    class Base(bdl.Model):
        heard = []

        def __init_subclass__(cls, tag, **kwargs):
            super().__init_subclass__(**kwargs)
            Base.heard.append((cls.__name__, tag))

    class Child(Base, tag=1):
        pass

    assert functional(Child)(X[:2]).shape == (2, 2)
    assert Base.heard == [("Child", 1)]


def test_clone_of_a_functional_model_is_a_keras_bdl_model():
    clone = keras.models.clone_model(functional(bdl.Model))
    assert isinstance(clone, bdl.Model)


def test_train_samples_average_the_loss_over_the_draws():
    # Dropout is the only noise, so K samples of the loss are K forward passes.
    keras.utils.set_random_seed(3)
    drop = keras.layers.Dropout(0.5, seed=5)
    model = bdl.Sequential(
        [keras.Input((4,)), drop, keras.layers.Dense(1, use_bias=False)]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse", train_samples=3)
    kernel = model.trainable_variables[0].numpy()
    state = drop.seed_generator.state.numpy()
    gradients, losses = [], []
    for _ in range(3):
        dropped = drop(X, training=True).numpy()
        error = dropped @ kernel - Y[:, None]
        losses.append(np.mean(error**2))
        gradients.append(2 * dropped.T @ error / len(X))
    drop.seed_generator.state.assign(state)
    logs = model.train_on_batch(X, Y[:, None], return_dict=True)
    np.testing.assert_allclose(logs["loss"], np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(
        model.trainable_variables[0],
        kernel - 0.1 * np.mean(gradients, 0),
        rtol=1e-4,
    )


def test_two_replicas_train_like_one_device(mirrored):
    def fit(strategy_scope):
        keras.utils.set_random_seed(3)
        with strategy_scope:
            model = sequential(bdl.Sequential)
            model.compile(
                keras.optimizers.SGD(0.1), cross_entropy(), train_samples=2
            )
        model.fit(X, Y, batch_size=20, shuffle=False, verbose=0)
        return model

    two, one = fit(mirrored.scope()), fit(contextlib.nullcontext())
    for a, b in zip(two.weights, one.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(*a.value.values)
    np.testing.assert_allclose(
        two.history.history["loss"], one.history.history["loss"], rtol=1e-5
    )


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_pickled_model_is_the_same_model(kind):
    make, ours, _ = KINDS[kind]
    model, _ = train(make, ours)
    copy = pickle.loads(pickle.dumps(model))
    assert isinstance(copy, ours)
    assert_same_state(copy, model)


@pytest.mark.parametrize("objective", ["taylor", bdl.objectives.MAP])
def test_invalid_objective_is_refused(objective):
    with pytest.raises(ValueError, match="`objective` must be an object of"):
        sequential(bdl.Sequential).compile("sgd", "mse", objective=objective)


@pytest.mark.parametrize("bad", [0, 2.0, True])
def test_bad_train_samples_are_refused(bad):
    with pytest.raises(ValueError, match="`train_samples` must be"):
        sequential(bdl.Sequential).compile("sgd", "mse", train_samples=bad)


def test_samples_without_a_posterior_are_refused():
    model = sequential(bdl.Sequential)
    model.compile("sgd", cross_entropy(), samples=5)
    with pytest.raises(ValueError, match="needs a model with a posterior"):
        model.evaluate(X, Y, verbose=0)


class Shifts(keras.optimizers.SGD):
    """An optimizer with a posterior: sample k adds k to the outputs."""

    def call_with_draw(self, model, x, draw):
        return model(x, training=False) + keras.ops.arange(2.0) * draw


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_samples_average_probabilities_for_a_cross_entropy():
    model = sequential(bdl.Sequential)
    model.compile(Shifts(), cross_entropy(), metrics=["accuracy"], samples=3)
    logits = model(X).numpy()
    mean = np.mean(
        [softmax(logits + np.arange(2.0) * draw) for draw in range(3)], 0
    )
    np.testing.assert_allclose(
        softmax(model.predict(X, verbose=0)), mean, rtol=1e-5
    )
    logs = model.evaluate(X, Y, verbose=0, return_dict=True)
    nll = -np.log(mean[np.arange(len(Y)), Y])
    np.testing.assert_allclose(logs["loss"], nll.mean(), rtol=1e-5)
    assert logs["accuracy"] == pytest.approx(np.mean(mean.argmax(-1) == Y))


def test_samples_average_outputs_for_errors_and_losses_that_are_unknown():
    def squared(y_true, y_pred):
        return keras.ops.mean((y_true - y_pred) ** 2, axis=-1)

    model = sequential(bdl.Sequential)
    target = np.zeros((40, 2), "float32")
    draws = [model(X).numpy() + np.arange(2.0) * k for k in range(3)]
    for function, expected in [
        ("mse", np.mean(np.mean(draws, 0) ** 2)),
        (squared, np.mean(np.square(draws))),
    ]:
        model.compile(Shifts(), function, samples=3)
        np.testing.assert_allclose(
            model.evaluate(X, target, verbose=0), expected, rtol=1e-5
        )
        np.testing.assert_allclose(
            model.predict(X, verbose=0), np.mean(draws, 0), rtol=1e-4, atol=1e-6
        )


class OwnStep(keras.optimizers.SGD):
    """Runs the training step: one SGD step on twice the loss."""

    def bayesian_train_step(self, model, data):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = 2 * model.compute_loss(x, y, y_pred, weight)
        variables = model.trainable_variables
        self.apply(tape.gradient(loss, variables), variables)
        return model.finish_step(loss, x, y, y_pred, weight)


def test_optimizer_with_its_own_step_runs_the_step():
    def fit(optimizer):
        keras.utils.set_random_seed(3)
        model = sequential(bdl.Sequential)
        model.compile(optimizer, cross_entropy())
        return model, model.fit(X, Y, batch_size=40, verbose=0).history["loss"]

    own, own_loss = fit(OwnStep(0.05))
    plain, plain_loss = fit(keras.optimizers.SGD(0.1))
    for a, b in zip(own.weights, plain.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(own_loss, 2 * np.array(plain_loss), rtol=1e-6)


def test_train_samples_work_with_compute_loss_without_training():
    class Own(bdl.Sequential):
        def compute_loss(self, x, y, y_pred, sample_weight=None):
            return 3.0 * keras.ops.mean(keras.ops.square(y_pred - 1.0))

    model = sequential(Own)
    model.compile(keras.optimizers.SGD(0.0), "mse", train_samples=2)
    logs = model.train_on_batch(X, X[:, :2], return_dict=True)
    expected = 3 * np.mean((model(X).numpy() - 1) ** 2)
    np.testing.assert_allclose(logs["loss"], expected, rtol=1e-5)


def test_model_that_calls_its_layers_without_training_is_refused():
    class Silent(bdl.Model):
        def __init__(self):
            super().__init__()
            self.dense = bdl.layers.MeanFieldDense(1)

        def call(self, x):
            return self.dense(x)

    model = Silent()
    model.compile("sgd", "mse")
    model.predict(X, verbose=0)
    model.evaluate(X, Y, verbose=0)
    with pytest.raises(ValueError, match="the argument `training=None`"):
        model.fit(X, Y, verbose=0)
