"""Contracts that every objective keeps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._random._noise import EVALUATION
from keras_bdl.objectives import MAP
from keras_bdl.objectives import Hutchinson
from keras_bdl.objectives import PerExampleFisher
from keras_bdl.objectives import SampledVI
from keras_bdl.objectives import TaylorVI
from tests.helpers import assert_equal
from tests.helpers import check_config
from tests.helpers import dtype_policy
from tests.objectives.transcription import N
from tests.objectives.transcription import kl
from tests.objectives.transcription import nll
from tests.objectives.transcription import start
from tests.optimizers.variational import START
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import cross_entropy
from tests.optimizers.variational import per_example_gradients
from tests.optimizers.variational import softmax_regression

VI = pytest.mark.parametrize("cls", [TaylorVI, SampledVI])


def fit(model, epochs=1, batch_size=4, **kwargs):
    return model.fit(
        X, Y, batch_size, epochs=epochs, shuffle=False, verbose=0, **kwargs
    ).history


def adam(rate=0.01):
    return keras.optimizers.Adam(rate)


def all_variables(model):
    return [
        *model.weights,
        *model.objective.trainable_variables,
        *model.optimizer.variables,
    ]


def test_map_adds_the_prior_to_the_loss():
    prior = bdl.priors.Laplace(0.5)
    objective = MAP(
        prior, temperature=0.3, dataset_size=100, exclude_from_inference="bias"
    )
    model = softmax_regression(keras.optimizers.SGD(1.0), objective=objective)
    with pytest.warns(UserWarning, match="dataset_size=100, counted 12"):
        logs = fit(model, batch_size=N)
    kernel, bias = start()
    energy = np.sum(np.abs(kernel)) / 0.5 + kernel.size * np.log(2 * 0.5)
    expected = nll(kernel, bias) + 0.3 * energy / 100
    assert logs == {"loss": [pytest.approx(expected, rel=1e-6)]}
    gradients = [g.mean(0) for g in per_example_gradients(kernel, bias)]
    gradients[0] += 0.3 / 100 * np.sign(kernel) / 0.5
    for new, old, g in zip(model.get_weights(), START, gradients, strict=True):
        np.testing.assert_allclose(old - new, g, atol=1e-6)
    p = bdl.predict(model, X, verbose=0)
    np.testing.assert_allclose(
        p.mean, tf.nn.softmax(model(X, training=False)), rtol=1e-5
    )


def test_map_without_a_prior_trains_as_keras_does():
    def train(objective):
        keras.utils.set_random_seed(0)
        model = bdl.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(5, "relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.3),
                keras.layers.Dense(3),
            ]
        )
        model.compile(adam(), cross_entropy(), objective=objective)
        logs = fit(model, 2)
        return [*model.get_weights(), logs["loss"]]

    ours = train(MAP(temperature=1e-30))
    for a, b in zip(ours, train(None), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@VI
def test_temperature_may_be_a_schedule_of_iterations_and_scales_the_kl(cls):
    ramp = bdl.schedules.LinearRamp(0.1, 1.0, end_step=3)
    model = softmax_regression(
        keras.optimizers.SGD(0.0), objective=cls("fixed", 0.2, temperature=ramp)
    )
    divergence = kl(start(), [np.full(w.shape, 0.2) for w in START]) / N
    for tau in (0.1, 0.4, 0.7, 1.0):
        logs = fit(model, batch_size=N)
        assert logs["kl"][0] == pytest.approx(divergence, rel=1e-5)
        assert logs["loss"][0] - logs["nll"][0] == pytest.approx(
            tau * divergence, rel=1e-4
        )


@pytest.mark.parametrize(
    "optimizer", [keras.optimizers.SGD, keras.optimizers.Adam]
)
def test_learning_rate_multiplier_scales_steps_of_variances(optimizer):
    def moved(multiplier):
        objective = TaylorVI(
            "diagonal", 0.5, learning_rate_multiplier=multiplier,
            exclude_from_inference="bias",
        )  # fmt: skip
        model = softmax_regression(optimizer(0.01), objective=objective)
        fit(model, batch_size=N)
        after = objective.posterior(model).get_state()["variance"][0]
        return np.log(after / 0.5**2), model.get_weights()

    once, weights = moved(1.0)
    five_times, same = moved(5.0)
    assert_equal(weights, same)
    np.testing.assert_allclose(five_times, 5 * once, rtol=2e-3)


@pytest.mark.parametrize(
    "cls, covariance",
    [
        (TaylorVI, "scalar"),
        (SampledVI, "diagonal"),
    ],
)
def test_resumed_run_ends_as_one_without_a_break(cls, covariance, tmp_path):
    def made():
        objective = cls(covariance, 0.3, dataset_size=N, seed=3)
        return softmax_regression(adam(), objective=objective, samples=2)

    whole, half = made(), made()
    fit(whole, 4)
    fit(half, 2)
    half.save(tmp_path / "half.keras")
    resumed = keras.models.load_model(tmp_path / "half.keras")
    assert len(resumed.get_weights()) == 2
    assert resumed.evaluate(X, Y, verbose=0) == half.evaluate(X, Y, verbose=0)
    posteriors = [m.objective.posterior(m).get_state() for m in (half, resumed)]
    assert_equal(posteriors[0]["variance"], posteriors[1]["variance"])
    fit(resumed, 2)
    assert_equal(all_variables(whole), all_variables(resumed))


class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def test_checkpoint_holds_variances(tmp_path):
    def train(*callbacks):
        objective = SampledVI("diagonal", seed=0)
        model = softmax_regression(adam(), objective=objective)
        saved = bdl.callbacks.Checkpoint(tmp_path / "run")
        fit(model, 4, callbacks=[*callbacks, saved] if callbacks else [])
        return model

    whole = train()
    with pytest.raises(KeyboardInterrupt):
        train(Killed())
    resumed = train(keras.callbacks.Callback())
    assert_equal(all_variables(whole), all_variables(resumed))


def test_save_weights_saves_the_variances(tmp_path):
    model = softmax_regression(adam(), objective=TaylorVI("scalar"))
    fit(model)
    model.save_weights(tmp_path / "x.weights.h5")
    other = softmax_regression(adam(), objective=TaylorVI("scalar"))
    fit(other, 2)  # Keras loads the state of a built optimizer only
    other.load_weights(tmp_path / "x.weights.h5")
    assert_equal(
        model.objective.trainable_variables, other.objective.trainable_variables
    )
    diagonal = softmax_regression(adam(), objective=TaylorVI("diagonal"))
    with pytest.raises(ValueError, match="could not be loaded"):
        diagonal.load_weights(tmp_path / "x.weights.h5")


@VI
def test_replicas_stay_equal_and_train_the_variances(cls, mirrored):
    with mirrored.scope():
        model = softmax_regression(adam(), objective=cls("diagonal", 0.3))
    (stddev,) = model.objective.trainable_variables
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)
    logs = model.fit(
        data, epochs=2, shuffle=False, verbose=0, validation_data=data
    ).history
    assert np.abs(stddev.numpy()).min() > 0
    for v in [*model.weights, stddev]:
        first, second = mirrored.experimental_local_results(v.value)
        np.testing.assert_array_equal(first, second)
    assert logs["val_loss"][-1] == pytest.approx(
        logs["val_nll"][-1] + logs["val_kl"][-1], rel=1e-5
    )


@pytest.mark.parametrize("size", [None, 4])
def test_examples_count_equally_on_unequal_replicas(mirrored, size):
    def train(strategy):
        with strategy.scope():
            # So small that squares, which replicas take of what they see, do
            # not count.
            objective = TaylorVI("diagonal", 1e-6, gradient_batch_size=size)
            model = softmax_regression(
                keras.optimizers.SGD(0.3), objective=objective
            )
        # One example is left for the last batch, and one replica has none.
        data = tf.data.Dataset.from_tensor_slices((X[:9], Y[:9])).batch(8)
        logs = model.fit(data, shuffle=False, verbose=0).history
        variables = [*model.get_weights(), *objective.trainable_variables]
        return variables, {name: value[0] for name, value in logs.items()}

    one, logs = train(tf.distribute.get_strategy())
    shared, of_replicas = train(mirrored)
    for a, b in zip(shared, one, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert of_replicas == pytest.approx(logs, rel=1e-5)


def test_replicas_train_the_variances_of_an_unbuilt_model(mirrored):
    class Late(bdl.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x):
            return self.dense(x)

    with mirrored.scope():
        model = Late()
        model.compile(adam(), cross_entropy(), objective=SampledVI("scalar"))
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)
    model.fit(data, shuffle=False, verbose=0)
    assert np.abs(model.objective.trainable_variables[0].numpy()).min() > 0


@VI
def test_evaluation_and_prediction_use_samples_of_the_gaussian(cls):
    objective = cls("diagonal", 0.4, seed=2)
    model = softmax_regression(adam(), objective=objective, samples=2)
    logs = fit(model, validation_data=(X, Y))
    variables = model.trainable_variables
    variance = objective.posterior(model).get_state()["variance"]
    stddevs = [np.sqrt(v) for v in variance]
    probabilities = []
    for k in range(2):
        noises = objective.noises(model, variables, stream=EVALUATION, number=k)
        kernel, bias = (
            mean + stddev * eps.numpy()
            for mean, stddev, eps in zip(
                model.get_weights(), stddevs, noises, strict=True
            )
        )
        probabilities.append(tf.nn.softmax(X @ kernel + bias))
    mean = np.mean(probabilities, 0)
    drawn = model.predict(X, batch_size=5, verbose=0)
    np.testing.assert_allclose(tf.nn.softmax(drawn), mean, rtol=1e-4)
    expected = -np.log(mean[np.arange(N), Y]).mean()
    assert logs["val_nll"][-1] == pytest.approx(expected, rel=1e-4)

    p = bdl.predict(model, X, samples=3, verbose=0)
    q = bdl.predict(model, X, objective.posterior(model), samples=3, verbose=0)
    np.testing.assert_array_equal(p.mean, q.mean)
    assert p.mutual_information.max() > 0.001


@VI
def test_excluded_weights_have_neither_prior_nor_variance(cls):
    objective = cls("fixed", 0.3, exclude_from_inference=["bias"])
    model = softmax_regression(keras.optimizers.SGD(0.0), objective=objective)
    logs = fit(model, batch_size=N)
    expected = kl([START[0]], [np.full(START[0].shape, 0.3)]) / N
    assert logs["kl"][0] == pytest.approx(expected, rel=1e-5)
    variance = objective.posterior(model).get_state()["variance"]
    assert variance[0].min() > 0
    assert not variance[1].any()


@VI
def test_batch_normalization_has_no_variance_and_asks_for_its_statistics(cls):
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(5, activation="softplus"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(adam(), cross_entropy(), objective=cls("scalar", 0.3))
    fit(model)
    variances = model.objective.posterior(model).get_state()["variance"]
    assert [v.any() for v in variances] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    bdl.predict(model, X, samples=2, batch_norm_data=X, verbose=0)
    if cls is SampledVI:  # trained under draws, its statistics fit them
        bdl.predict(model, X, samples=2, verbose=0)
    else:
        with pytest.warns(UserWarning, match="`batch_norm_data`"):
            bdl.predict(model, X, samples=2, verbose=0)


@VI
def test_training_step_is_traced_once(cls, monkeypatch):
    looks = []
    data_term = cls.data_term

    def counted(self, *args):
        looks.append(1)
        return data_term(self, *args)

    monkeypatch.setattr(cls, "data_term", counted)
    ramp = bdl.schedules.LinearRamp(0.5, 1.0, end_step=8)
    model = softmax_regression(
        adam(), objective=cls("diagonal", temperature=ramp), samples=2,
        steps_per_execution=3,
    )  # fmt: skip
    fit(model, 2, validation_data=(X, Y))
    model.objective.posterior(model)
    fit(model, 2, validation_data=(X, Y))
    assert len(looks) == 1


def test_xla_gives_the_same_draws_and_variances():
    def train(jit_compile):
        objective = SampledVI("scalar", 0.3, seed=0)
        model = softmax_regression(
            adam(), objective=objective, jit_compile=jit_compile
        )
        fit(model, 2)
        return all_variables(model)

    for a, b in zip(train(True), train(False), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("size", [None, 4])
def test_squared_gradients_do_not_vanish_in_half_precision(
    size,
):
    def squares(policy):
        # The KL is too small to matter.
        objective = TaylorVI(
            "diagonal", 2.0, gradient_batch_size=size, temperature=1e-12,
            learning_rate_multiplier=1.0, exclude_from_inference="bias",
        )  # fmt: skip
        optimizer = keras.optimizers.SGD(1.0)
        if policy == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        with dtype_policy(policy):
            model = softmax_regression(optimizer, objective=objective)
        # The squares of such gradients are nothing in float16.
        model.fit(X * 2e-4, Y, N, shuffle=False, verbose=0)
        return -objective.trainable_variables[0].numpy()

    half, single = squares("mixed_float16"), squares("float32")
    assert 1e-9 < single.max() < 1e-6
    np.testing.assert_allclose(half, single, rtol=0, atol=0.02 * single.max())


def test_step_in_half_precision_equals_float32_and_may_be_skipped():
    def train(policy):
        objective = TaylorVI("diagonal", 0.5)
        with dtype_policy(policy):
            model = softmax_regression("sgd", objective=objective)
        fit(model, batch_size=N)
        return model

    half, single = train("mixed_float16"), train("float32")
    assert isinstance(half.optimizer, keras.optimizers.LossScaleOptimizer)
    ours, theirs = (
        [*m.get_weights(), *m.objective.trainable_variables]
        for m in (half, single)
    )
    for a, b, old in zip(ours, theirs, [*START, 0.0], strict=True):
        step = np.abs(np.array(b) - old).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-2 * step)
    half.optimizer.dynamic_scale.assign(2.0**60)
    state = [v.numpy() for v in [*half.weights, ours[-1]]]
    fit(half, batch_size=N)
    assert float(half.optimizer.dynamic_scale) == 2.0**59
    assert_equal([*half.weights, ours[-1]], state)


def test_config():
    of_all = {
        "prior": bdl.priors.Laplace(2.0),
        "temperature": bdl.schedules.LinearRamp(0.1, 1.0, end_step=9),
        "dataset_size": 9,
        "exclude_from_inference": ["bias"],
    }
    gaussian = {
        **of_all,
        "covariance": "scalar",
        "learning_rate_multiplier": 3.0,
        "gradient_batch_size": 8,
        "seed": 4,
    }
    by_rate = {"stddev": None, "learning_rate_equivalent": 0.2}
    by_stddev = {"stddev": 0.5, "learning_rate_equivalent": None}
    check = HessianDiagonalOfTest()
    for cls, arguments in (
        (MAP, of_all),
        (SampledVI, {**gaussian, **by_rate}),
        (TaylorVI, {**gaussian, **by_stddev, "hessian_diagonal": check}),
    ):
        made = cls(**arguments)
        config = made.get_config()
        serialize = keras.saving.serialize_keras_object
        assert config == {n: serialize(v) for n, v in arguments.items()}
        revived = keras.saving.deserialize_keras_object(serialize(made))
        assert type(revived) is cls
        assert revived.get_config() == config
    check_config(Hutchinson, probes=3, seed=2)
    check_config(PerExampleFisher, fallback=True)


@keras.saving.register_keras_serializable(package="tests")
class HessianDiagonalOfTest(bdl.extend.HessianDiagonal):
    depends_on_group = True


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"covariance": "full"}, "`covariance` must be one of"),
        (
            {"stddev": 0.1, "learning_rate_equivalent": 0.1},
            "Leave one of",
        ),
        ({"learning_rate_equivalent": 0.1}, "needs `gradient_batch_size`"),
        ({"stddev": 0.0}, "`stddev` must be a number above 0"),
        ({"gradient_batch_size": 0}, "`gradient_batch_size` must be"),
        ({"temperature": 0.0}, "`temperature` must be a number above 0"),
        ({"learning_rate_multiplier": 0}, "must be a number above 0"),
        ({"seed": -1}, "`seed` must be an integer"),
        ({"prior": "normal"}, "`prior` must be"),
        ({"hessian_diagonal": "exact"}, "`hessian_diagonal` must be"),
        (
            {"gradient_batch_size": 2, "hessian_diagonal": Hutchinson()},
            "does not depend on it",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TaylorVI(**{"covariance": "scalar", **arguments})


@pytest.mark.parametrize(
    "optimizer, message",
    [
        (bdl.VOGN(), "finds a posterior itself"),
        (bdl.SGLD(), "finds a posterior itself"),
        (keras.optimizers.AdamW(), r"Leave \['weight_decay'\] out"),
        (keras.optimizers.SGD(use_ema=True), r"Leave \['use_ema'\] out"),
    ],
    ids=["VOGN", "SGLD", "AdamW", "EMA"],
)
def test_optimizers_that_change_the_objective_are_refused(optimizer, message):
    model = softmax_regression(optimizer, objective=TaylorVI("scalar"))
    with pytest.raises(ValueError, match=message):
        fit(model)


@pytest.mark.parametrize("objective", [MAP(), TaylorVI("scalar")])
def test_train_samples_is_refused_by_methods_without_samples(objective):
    model = softmax_regression(adam(), objective=objective, train_samples=2)
    with pytest.raises(ValueError, match="Received: train_samples=2"):
        fit(model)


def test_layers_with_distributions_of_their_own_are_refused():
    model = bdl.Sequential([keras.Input((4,)), bdl.layers.MeanFieldDense(3)])
    model.compile(adam(), cross_entropy(), objective=MAP())
    with pytest.raises(ValueError, match="distributions of their own"):
        fit(model)


def test_an_objective_is_no_loss():
    model = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", MAP())
    with pytest.raises(ValueError, match=r"`objective=MAP\(\.\.\.\)`"):
        fit(model)


def test_loss_must_be_a_mean_over_the_batch():
    model = softmax_regression(adam(), objective=MAP())
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="sum"
    )
    with pytest.raises(ValueError, match="mean over the batch"):
        model.compile(adam(), loss, objective=MAP())


@VI
def test_regularizer_warns_and_constraint_is_refused(cls):
    def made(**kwargs):
        model = bdl.Sequential(
            [keras.Input((4,)), keras.layers.Dense(3, **kwargs)]
        )
        model.compile(adam(0.0), cross_entropy(), objective=cls("fixed", 0.1))
        return model

    model = made(kernel_regularizer=keras.regularizers.L2(0.1))
    with pytest.warns(UserWarning, match="is a second prior"):
        logs = fit(model, batch_size=N)
    penalty = logs["loss"][0] - logs["nll"][0] - logs["kl"][0]
    # At the weights that the layers have: of `SampledVI`, at a draw.
    of_mean = 0.1 * np.sum(model.get_weights()[0] ** 2)
    assert penalty == pytest.approx(
        of_mean, rel=1e-4 if cls is TaylorVI else 0.5
    )
    with pytest.raises(ValueError, match="no constraint"):
        fit(made(kernel_constraint="non_neg"))


def test_learned_variances_are_refused_for_another_model():
    objective = SampledVI("diagonal")
    softmax_regression(adam(), objective=objective)
    for units in (5, 3):  # other shapes, and the same
        other = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
        other.compile(adam(), cross_entropy(), objective=objective)
        with pytest.raises(ValueError, match="Compile with a new objective"):
            fit(other)


@VI
def test_unbuilt_model_trains_and_then_has_a_posterior(cls):
    model = bdl.Sequential([keras.layers.Dense(3)])
    objective = cls("scalar")
    model.compile(adam(), cross_entropy(), objective=objective)
    with pytest.raises(ValueError, match="needs a built model"):
        objective.posterior(model)
    fit(model)
    assert len(objective.posterior(model).get_state()["variance"]) == 2
