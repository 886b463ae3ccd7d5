"""Seeds of training noise: drawn, kept, and the same after a restart."""

import inspect
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._random._seeds import NoiseSeed
from tests.helpers import arguments_of
from tests.helpers import assert_equal

# Classes whose noise is part of training: another run has other noise.
OPTIMIZERS = (
    *("ATMC", "IVON", "KFAC", "NoisyKFAC", "OGN"),
    *("SGHMC", "SGLD", "SGNHT", "VOGN"),
)
OBJECTIVES = ("Hutchinson", "SampledVI", "TaylorVI")
# All variational layers share one constructor.
LAYERS = {
    "MCDropout": lambda: bdl.layers.MCDropout(keras.layers.Dense(2), 0.5),
    "MeanFieldDense": lambda: bdl.layers.MeanFieldDense(2),
    "RadialConv2D": lambda: bdl.layers.RadialConv2D(2, 3),
}
# Results that a second call repeats: their default is 0, or they have none.
REPEATED = dict.fromkeys(
    ("APS", "GradientVariance", "PosteriorPredictive", "RAPS"), 0
)
BASES = ("MeanFieldLayer", "RadialLayer", "Variational")
REQUIRED = {"ImagePipeline"}
# Results of a measurement, which hold the seed that was used.
REPORTS = {"GradientVarianceReport"}


def classes_with_a_seed():
    """Returns the default seed of every public class that has one."""
    found = {}
    for folder in (bdl, *(getattr(bdl, name) for name in bdl.__all__)):
        for each in getattr(folder, "__all__", []):
            one = getattr(folder, each)
            if inspect.isclass(one) and not issubclass(one, BaseException):
                arguments = arguments_of(one)
                if "seed" in arguments:
                    found[each] = arguments["seed"]
    return found


def test_every_class_with_training_noise_draws_its_seed():
    found = classes_with_a_seed()
    for name in (*REQUIRED, *REPORTS):
        assert found.pop(name) is inspect.Parameter.empty
    layers = [n for n in (*bdl.layers.__all__, *BASES) if n in found]
    assert set(LAYERS) <= set(layers)
    assert found == {
        **dict.fromkeys((*OPTIMIZERS, *OBJECTIVES, *layers)),
        **REPEATED,
    }


def made(name, **kwargs):
    if name in OPTIMIZERS:
        return getattr(bdl.optimizers, name)(**kwargs)
    if name == "Hutchinson":
        return bdl.objectives.Hutchinson(**kwargs)
    return getattr(bdl.objectives, name)("scalar", **kwargs)


@pytest.mark.parametrize("name", [*OPTIMIZERS, *OBJECTIVES])
def test_seed_is_drawn_from_the_global_seed_and_kept_in_the_config(name):
    keras.utils.set_random_seed(3)
    first, second = made(name), made(name)
    keras.utils.set_random_seed(3)
    again = made(name)
    keras.utils.set_random_seed(4)
    other = made(name)
    assert isinstance(first, NoiseSeed)
    assert again.seed == first.seed
    assert len({first.seed, second.seed, other.seed}) == 3
    assert type(first).from_config(first.get_config()).seed == first.seed
    assert made(name, seed=7).seed == 7


@pytest.mark.parametrize("name", LAYERS)
def test_layers_draw_their_seed_as_layers_of_keras_do(name):
    def state(seed):
        keras.utils.set_random_seed(seed)
        layer = LAYERS[name]()
        # A layer around others has the generator in an inner layer.
        owner = layer if hasattr(layer, "seed_generator") else layer.dropout
        return owner.seed_generator.state.numpy().tolist()

    assert state(3) == state(3) != state(4)


def steps(optimizer_class, seed):
    """Returns the steps of a chain that is made the Keras way."""
    keras.utils.set_random_seed(seed)
    weights = keras.Variable(keras.random.normal((2000,)), name="kernel")
    optimizer = optimizer_class(1e-3, dataset_size=100)
    path = []
    for _ in range(12):
        optimizer.apply([tf.zeros_like(weights)], [weights])
        path.append(weights.numpy())
    moves = np.diff(path, axis=0)
    # In SGHMC and its relatives, noise accelerates.
    return np.diff(moves, axis=0).ravel()


@pytest.mark.parametrize("name", ["SGLD", "SGHMC", "SGNHT", "ATMC"])
def test_chains_with_other_global_seeds_have_independent_noise(name):
    # Without data: each chain has the noise and the same weak prior.
    chains = [steps(getattr(bdl, name), seed) for seed in (1, 2, 3)]
    assert_equal([steps(getattr(bdl, name), 1)], chains[:1])
    correlations = np.corrcoef(chains)[np.triu_indices(3, 1)]
    # The second differences of the steps have an autocorrelation of -1/2.
    stderr = np.sqrt(1.5 / chains[0].size)
    np.testing.assert_allclose(correlations, 0, atol=5 * stderr)


X = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
Y = X[:, :1]
DATA = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)


def compiled(process, optimizer=bdl.ATMC, **kwargs):
    """Returns a model of a new process, which draws other seeds."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    random.seed(process)
    model.compile(optimizer(1e-2, dataset_size=24, **kwargs), "mse")
    return model


def fitted(model, epochs, **kwargs):
    model.fit(DATA, epochs=epochs, shuffle=False, verbose=0, **kwargs)
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


class Killed(Exception):
    pass


def test_backup_and_restore_continues_with_the_same_noise(tmp_path):
    def kill(epoch, logs):
        if epoch == 1:
            raise Killed

    whole = fitted(compiled(1), 4)
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    dies = keras.callbacks.LambdaCallback(on_epoch_end=kill)
    with pytest.raises(Killed):
        fitted(compiled(1), 4, callbacks=[backup, dies])
    resumed = compiled(2)
    assert resumed.optimizer.seed != compiled(1).optimizer.seed
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    assert_equal(fitted(resumed, 4, callbacks=[backup]), whole)
    assert resumed.optimizer.seed == compiled(1).optimizer.seed


@pytest.mark.parametrize("of", ["model", "weights"])
def test_loaded_model_continues_with_the_same_noise(of, tmp_path):
    first = compiled(1)
    fitted(first, 1)
    path = tmp_path / {"model": "m.keras", "weights": "m.weights.h5"}[of]
    if of == "model":
        first.save(path)
        random.seed(2)
        loaded = keras.models.load_model(path)
    else:
        first.save_weights(path)
        loaded = compiled(2)
        loaded.optimizer.build(loaded.trainable_variables)
        loaded.load_weights(path)
    assert loaded.optimizer.seed == first.optimizer.seed
    assert_equal(fitted(loaded, 1), fitted(first, 1))


def saved(model, path):
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    model.optimizer.build(model.trainable_variables)
    model.save_weights(path)
    return inner.seed


def test_weights_of_another_run_do_not_replace_a_given_seed(tmp_path):
    path = tmp_path / "m.weights.h5"
    saved(compiled(1), path)
    given = compiled(2, seed=5)
    given.optimizer.build(given.trainable_variables)
    given.load_weights(path)
    assert given.optimizer.seed == 5


def test_seed_is_saved_inside_of_loss_scaling(tmp_path):
    def scaled(process):
        model = compiled(process)
        model.optimizer = keras.optimizers.LossScaleOptimizer(model.optimizer)
        return model

    path = tmp_path / "m.weights.h5"
    seed = saved(scaled(1), path)
    model = scaled(2)
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    assert model.optimizer.inner_optimizer.seed == seed


def test_weights_loaded_into_a_trained_optimizer_keep_its_noise(tmp_path):
    path = tmp_path / "m.weights.h5"
    saved(compiled(1), path)
    trained = compiled(2)
    fitted(trained, 1)
    before = trained.optimizer.seed
    with pytest.warns(UserWarning, match="keeps its own noise"):
        trained.load_weights(path)
    assert trained.optimizer.seed == before


def test_seeds_of_objectives_are_saved_with_the_weights(tmp_path):
    def model(process):
        random.seed(process)
        objective = bdl.objectives.TaylorVI(
            "diagonal", hessian_diagonal=bdl.objectives.Hutchinson()
        )
        net = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        net.compile("sgd", "mse", objective=objective)
        return net, [objective.seed, objective.hessian_diagonal.seed]

    first, seeds = model(1)
    first.save_weights(tmp_path / "m.weights.h5")
    second, others = model(2)
    assert not set(seeds) & set(others)
    second.load_weights(tmp_path / "m.weights.h5")
    assert [one.seed for one in second.objective.seeded()] == seeds


def test_drawn_seed_is_read_when_a_step_is_traced():
    # Two optimizers of one graph have their own noise.
    keras.utils.set_random_seed(1)
    variables = [keras.Variable(np.zeros(20, "float32")) for _ in range(2)]
    optimizers = [bdl.SGLD(1e-2, dataset_size=9) for _ in variables]
    for one, variable in zip(optimizers, variables, strict=True):
        one.build([variable])

    @tf.function
    def step():
        for one, variable in zip(optimizers, variables, strict=True):
            one.apply([tf.zeros_like(variable)], [variable])

    step()
    step()
    assert step.experimental_get_tracing_count() == 1
    assert not np.any(variables[0].numpy() == variables[1].numpy())
    for one, variable in zip(optimizers, variables, strict=True):
        alone = keras.Variable(np.zeros(20, "float32"))
        copy = bdl.SGLD.from_config(one.get_config())
        for _ in range(2):
            copy.apply([tf.zeros_like(alone)], [alone])
        np.testing.assert_allclose(alone, variable, rtol=1e-5)
