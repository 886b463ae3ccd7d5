"""Training on two logical CPUs of this process."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._random._noise import TRAINING
from keras_bdl.distribute._replicas import batch_of_group
from keras_bdl.distribute._replicas import replica_weight
from tests.distribute.cases import CASES
from tests.distribute.cases import LOSS
from tests.distribute.cases import METHODS
from tests.distribute.cases import ON_WORKERS
from tests.distribute.cases import compiled
from tests.distribute.cases import data
from tests.distribute.cases import fitted
from tests.processes import Command

ONE = tf.distribute.get_strategy()


# Methods without noise, and methods whose replicas share their noise.
LIKE_ONE = ("SGD", "SGLD", "ATMC", "OGN", "KFAC", "MAP")


@pytest.mark.parametrize("name", LIKE_ONE)
def test_replicas_train_like_one_device_though_a_batch_is_uneven(name, devices):
    one = CASES[name](ONE, None)["weights"]
    for ours, theirs in zip(devices(name)["weights"], one, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted({*ON_WORKERS, *LIKE_ONE}))
def test_nothing_is_traced_after_the_first_epoch(name, devices):
    first, second = devices(name)["traces"]
    # One trace for each replica, and one for the last, uneven batch.
    assert first == second <= 4


def on_replicas(strategy, function, parts):
    """Returns the results of a function of nested arrays on each replica."""
    values = strategy.experimental_distribute_values_from_function(
        lambda context: keras.tree.map_structure(
            tf.constant, parts[int(context.replica_id_in_sync_group)]
        )
    )
    results = tf.function(lambda: strategy.run(function, (values,)))()
    local = [
        [t.numpy() for t in strategy.experimental_local_results(result)]
        for result in keras.tree.flatten(results)
    ]
    return list(zip(*local, strict=True))


def of_any_size(array):
    """Returns an array of unknown static length, as in `fit`."""
    return tf.boolean_mask(array, tf.ones(len(array), tf.bool))


def test_every_replica_sees_the_whole_batch_whatever_its_type(mirrored):
    x = np.arange(10).reshape(5, 2)
    types = ("uint8", "float32", "int64", "bool")
    parts = [
        [x[rows].astype(t) for t in types] for rows in (slice(3), slice(3, 5))
    ]

    def whole(arrays):
        return batch_of_group([of_any_size(a) for a in arrays], 2)

    for replica in on_replicas(mirrored, whole, parts):
        for array, dtype in zip(replica, types, strict=True):
            assert array.dtype == dtype
            np.testing.assert_array_equal(array, x.astype(dtype))


FOUR = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 4,
)
import numpy as np
from keras_bdl.distribute import strategy
from keras_bdl.distribute._replicas import batch_of_group
from tests.distribute.test_devices import on_replicas
parts = [np.arange(3.0) + 3 * r for r in range(4)]
found = on_replicas(strategy("mirrored"), lambda v: batch_of_group(v, 2), parts)
for replica, (array,) in enumerate(found):
    half = replica % 2
    np.testing.assert_array_equal(array, np.arange(6.0) + 6 * half)
"""


def test_two_copies_of_a_batch_on_four_replicas_are_halves(tmp_path):
    script = tmp_path / "four.py"
    script.write_text(FOUR)
    process = Command(script)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed


def test_replica_weights_give_the_mean_over_examples(mirrored):
    parts = [np.arange(3.0), np.arange(3.0, 4.0)]
    weights = on_replicas(
        mirrored, lambda v: replica_weight(of_any_size(v)), parts
    )
    mean = np.mean(
        [w * p.mean() for (w,), p in zip(weights, parts, strict=True)]
    )
    assert mean == np.mean(np.arange(4.0))


@pytest.mark.parametrize("copies", (1, 2))
def test_a_step_averages_gradients_over_draws_of_the_replicas(copies, mirrored):
    model = compiled(mirrored, METHODS["IVON"], sample_replicas=copies)
    model.optimizer.dataset_size.count(6)
    prepared = model.optimizer.prepare(model)
    draws = mirrored.run(
        tf.function(lambda: model.optimizer.draw(prepared, TRAINING, 0))
    )
    draws = [mirrored.experimental_local_results(d) for d in draws]
    x, y = data(6)
    model.fit(x, y, batch_size=6, shuffle=False, verbose=0)

    one = compiled(ONE, METHODS["SGD"])
    of_draws = []
    for replica in range(2):
        for variable, draw in zip(one.trainable_variables, draws, strict=True):
            variable.assign(draw[replica])
        with tf.GradientTape() as tape:
            # Half of the batch, or the whole batch.
            seen = slice(3 * replica, 3 * replica + 3) if copies == 1 else ...
            loss = LOSS(y[seen], one(x[seen]))
        of_draws.append(tape.gradient(loss, one.trainable_variables))
    assert all(np.any(d[0] != d[1]) for d in draws)
    beta_1 = model.optimizer.beta_1
    for momentum, a, b in zip(model.optimizer._momenta, *of_draws, strict=True):
        np.testing.assert_allclose(
            momentum.numpy(), (1 - beta_1) * (a + b) / 2, rtol=1e-4, atol=1e-7
        )


def test_draws_of_a_prediction_are_traced_once_and_shared_out(mirrored):
    sizes = []

    class Seen(keras.layers.Layer):
        def call(self, x):
            sizes.append(x.shape[0])
            return x

    dense = bdl.layers.MeanFieldDense
    model = compiled(mirrored, METHODS["SGD"], lambda: [Seen()], dense=dense)
    x, _ = data(24)
    sizes.clear()
    bdl.predict(model, x, samples=5, batch_size=12, verbose=0)
    assert sizes == [6, 6]  # one trace for each replica


def test_each_name_gives_its_strategy(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)
    assert bdl.distribute.strategy("default") is ONE
    assert bdl.distribute.strategy() is ONE
    assert bdl.distribute.strategy("mirrored").num_replicas_in_sync == 2


TWO = '{"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}'


@pytest.mark.parametrize(
    ("name", "config", "match"),
    [
        ("gpu", None, '"mirrored".*Received: name=.gpu'),
        ("tpu:", None, "Received: name='tpu:'"),
        ("multi_worker", None, "`TF_CONFIG` on every machine"),
        ("auto", '{"cluster": ["a:1", "b:1"]}', "list of machines"),
        ("auto", "{", "`TF_CONFIG` must be a JSON object"),
        ("auto", '{"cluster": {"worker": "a:1"}}', "list of machines"),
        ("auto", TWO + "}", "the place of this machine"),
        ("auto", TWO + ', "task": {"type": "worker"}}', "the place of this"),
        (
            "multi_worker",
            TWO + ', "task": {"type": "worker", "index": 2}}',
            "the place of this machine",
        ),
        (
            "auto",
            '{"cluster": {"worker": ["a", "b"]}, '
            '"task": {"type": "worker", "index": 0}}',
            "their ports",
        ),
        (
            "auto",
            TWO + ', "task": {"type": "worker", "index": -1}}',
            "the place of this machine",
        ),
    ],
)
def test_wrong_names_and_clusters_are_refused(name, config, match, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match=match):
        bdl.distribute.strategy(name)


def test_error_without_a_tpu_names_the_tpu(monkeypatch):
    def nothing(tpu):
        raise OSError("nobody is there")

    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setattr(resolvers, "TPUClusterResolver", nothing)
    monkeypatch.delenv("TPU_NAME", raising=False)
    for name, tpu in (("tpu", "local"), ("tpu:far", "far")):
        match = f"needs a machine with a TPU.*TPU '{tpu}'.*nobody is there"
        with pytest.raises(RuntimeError, match=match):
            bdl.distribute.strategy(name)


CLUSTER = TWO + ', "task": {"type": "worker", "index": 0}}'


def test_multi_worker_after_the_start_of_tensorflow_is_refused(
    monkeypatch, capsys
):
    tf.constant(1.0)
    monkeypatch.setenv("TF_CONFIG", CLUSTER)
    with pytest.raises(RuntimeError, match="before any computation"):
        bdl.distribute.strategy()
    waits = "127.0.0.1:1 waits until all of ['127.0.0.1:2'] have started."
    assert waits in capsys.readouterr().out


def test_a_port_in_use_is_explained(monkeypatch):
    def make(resolver):
        raise tf.errors.UnknownError(None, None, "Could not start gRPC server")

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", make)
    monkeypatch.setenv("TF_CONFIG", CLUSTER)
    with pytest.raises(RuntimeError, match="in use, in 127.0.0.1:1"):
        bdl.distribute.strategy()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"jit_compile": True}, "`jit_compile` must be `False`"),
        ({"sample_replicas": 3}, "must divide the number of replicas"),
        ({"sample_replicas": 0}, "an integer of at least 1"),
    ],
)
def test_compile_refuses_what_a_strategy_cannot_do(arguments, match, mirrored):
    with pytest.raises(ValueError, match=match):
        compiled(mirrored, METHODS["SGD"], **arguments)


def test_an_objective_of_another_strategy_is_refused(mirrored):
    objective = bdl.objectives.SampledVI("scalar")
    compiled(ONE, METHODS["SGD"], objective=objective)
    with pytest.raises(ValueError, match="and a new objective.*log_stddev"):
        compiled(mirrored, METHODS["SGD"], objective=objective)


@pytest.mark.parametrize(
    ("optimizer", "copies", "epochs", "like"),
    [("SGD", 1, 2, "SGD"), ("VOGN", 2, 1, "monte_carlo")],
)
def test_eager_steps_equal_graph_steps(
    optimizer, copies, epochs, like, mirrored, devices
):
    options = {"run_eagerly": True, "sample_replicas": copies}
    model = fitted(compiled(mirrored, METHODS[optimizer], **options), epochs)
    for ours, theirs in zip(
        model.get_weights(), devices(like)["weights"], strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    # The last batch leaves a replica without an example.
    assert np.all(np.isfinite(model.history.history["loss"]))


def test_sample_replicas_must_divide_the_replicas():
    with pytest.raises(ValueError, match="with 1 replicas"):
        compiled(ONE, METHODS["SGD"], sample_replicas=2)


def test_layers_and_optimizers_made_outside_of_the_scope_are_refused(mirrored):
    optimizer = bdl.ATMC(1e-2)
    with pytest.raises(ValueError, match="`optimizer` must be made under"):
        compiled(mirrored, lambda: optimizer)

    noise = keras.layers.Dropout(0.1)
    with pytest.raises(ValueError, match="Every variable must be made under"):
        compiled(mirrored, METHODS["SGD"], lambda: [noise])

    model = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="in which it is compiled"):
        with mirrored.scope():
            model.compile("sgd", LOSS)


@pytest.mark.parametrize("replicas", (1, 2))
def test_strategies_out_of_step_are_refused(replicas, mirrored):
    class Server(tf.distribute.Strategy):  # as for parameter servers
        num_replicas_in_sync = replicas

    model = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model._distribute_strategy = Server(mirrored.extended)
    with pytest.raises(ValueError, match="replicas in step.*strategy=Server"):
        model.compile("sgd", LOSS)


def test_several_steps_at_once_take_inputs_with_names(mirrored):
    x, y = data(40)
    named = {"first": x[:, :2], "second": x[:, 2:]}
    weights = []
    for steps in (1, 2):
        keras.utils.set_random_seed(1)
        with mirrored.scope():
            inputs = {n: keras.Input((2,), name=n) for n in named}
            joined = keras.layers.Concatenate()(list(inputs.values()))
            model = bdl.Model(inputs, keras.layers.Dense(2)(joined))
            model.compile("sgd", LOSS, steps_per_execution=steps)
        model.fit(named, y, batch_size=8, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    np.testing.assert_allclose(weights[0][0], weights[1][0], rtol=1e-6)


def test_an_optimizer_by_name_may_be_compiled_outside_of_the_scope(mirrored):
    with mirrored.scope():
        model = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", LOSS)
    fitted(model, epochs=1, num_examples=16)
    assert model.optimizer.iterations.numpy() == 1
