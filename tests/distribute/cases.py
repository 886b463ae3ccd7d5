"""The cases that the tests of distribution run under each strategy.

A case is a function of a strategy and a folder that returns a nested dict of
numbers and arrays. Two workers run it, one process each, and one process with
two logical CPUs. To add a method, add a line to `METHODS`.
"""

import functools
import os

import keras
import numpy as np
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.distribute._replicas import variable_copies
from tests.helpers import cross_entropy

LOSS = cross_entropy()
# Three batches of 16, and one that leaves a replica without an example.
NUM_EXAMPLES, BATCH_SIZE = 49, 16

METHODS = {
    "SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "SGLD": lambda: bdl.SGLD(1e-3),
    "SGHMC": lambda: bdl.SGHMC(1e-2),
    "SGNHT": lambda: bdl.SGNHT(1e-2),
    "ATMC": lambda: bdl.ATMC(1e-2),
    "OGN": lambda: bdl.OGN(1e-2),
    "VOGN": lambda: bdl.VOGN(1e-2),
    "IVON": lambda: bdl.IVON(1e-3, initial_curvature=0.1),
    "KFAC": lambda: bdl.KFAC(1e-2, update_every=2, curvature_every=1),
    "NoisyKFAC": lambda: bdl.NoisyKFAC(1e-2, update_every=2, curvature_every=1),
}
OBJECTIVES = {
    "MAP": lambda: bdl.objectives.MAP(),
    "TaylorVI": lambda: bdl.objectives.TaylorVI("diagonal"),
    "SampledVI": lambda: bdl.objectives.SampledVI("diagonal", seed=0),
}
LAYERS = {
    "mean_field": bdl.layers.MeanFieldDense,
    "radial": bdl.layers.RadialDense,
    "mc_dropout": lambda *args, **kwargs: bdl.layers.MCDropout(
        keras.layers.Dense(*args, **kwargs), 0.2
    ),
}
# Steps in an execution. Of the four steps of an epoch, the last one is alone.
AT_ONCE = {"MAP": 3}
# Callbacks that observe a training. This model has no BatchNorm.
WATCHING = {
    "SGLD": lambda: bdl.callbacks.SampleCollector(1),
    "ATMC": lambda: bdl.callbacks.ChainDiagnostics(verbose=0),
    "radial": lambda: bdl.callbacks.GradientVariance(data(8), samples=2),
}
ALL = (*METHODS, *OBJECTIVES, *LAYERS)
# Between workers, ATMC has all that SGHMC and SGNHT have, and VOGN that of OGN.
ON_WORKERS = tuple(n for n in ALL if n not in ("SGHMC", "SGNHT", "OGN"))
# Methods that evaluate and predict with their own posterior.
DRAWING = ("VOGN", "IVON", "mean_field", "radial")
# Methods for evaluation and prediction, one of each kind.
PREDICTED = ("SGD", "VOGN", "mean_field")


def data(num_examples=NUM_EXAMPLES):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_examples, 4)).astype("float32")
    return x, (x[:, 0] * x[:, 1] > 0).astype("int32")


class Counted(bdl.Sequential):
    """Counts the traces of its training step, one for each replica."""

    traces = 0

    def train_step(self, data):
        self.traces += 1
        return super().train_step(data)


class TracesOfEpochs(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.counts = []

    def on_epoch_end(self, epoch, logs=None):
        self.counts.append(self.model.traces)


def compiled(
    strategy,
    optimizer,
    inner=tuple,
    dense=keras.layers.Dense,
    kind=bdl.Sequential,
    **kwargs,
):
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        first, last = dense(5, activation="tanh"), dense(2)
        model = kind([keras.Input((4,)), first, *inner(), last])
        model.compile(optimizer(), LOSS, metrics=["accuracy"], **kwargs)
    return model


def fitted(model, epochs=2, num_examples=NUM_EXAMPLES, **kwargs):
    x, y = data(num_examples)
    model.fit(x, y, batch_size=BATCH_SIZE, epochs=epochs, verbose=0, **kwargs)
    return model


def state(model):
    """Returns the results that must be equal on all devices."""
    return {
        "weights": [v.numpy() for v in model.trainable_variables],
        "optimizer": [v.numpy() for v in model.optimizer.variables],
        "history": model.history.history,
    }


def local_values(model):
    """Returns the results of each replica: BatchNorm statistics and seeds."""
    return {
        variable.path: [copy.numpy() for copy in variable_copies(variable)]
        for variable in model.non_trainable_variables
    }


def method(name, strategy, folder):
    kwargs = {"dense": LAYERS[name]} if name in LAYERS else {}
    if name in AT_ONCE:
        kwargs["steps_per_execution"] = AT_ONCE[name]
    if name in DRAWING:
        kwargs["samples"] = 2
    if name in OBJECTIVES:
        kwargs["objective"] = OBJECTIVES[name]()
    optimizer = METHODS.get(name, lambda: keras.optimizers.Adam(1e-2))
    model = compiled(strategy, optimizer, kind=Counted, **kwargs)
    traces = TracesOfEpochs()
    callbacks = [traces]
    if name in WATCHING:
        callbacks.append(WATCHING[name]())
    if name not in PREDICTED:
        fitted(model, callbacks=callbacks)
        return {**state(model), "traces": traces.counts}
    # An evaluation of 21 examples, whose last batch is also uneven.
    fitted(model, callbacks=callbacks, validation_data=data(21))
    result = {**state(model), "traces": traces.counts}
    x, _ = data(21)
    result["predicted"] = model.predict(x, batch_size=16, verbose=0)
    samples = 3 if name in DRAWING else None
    result["averaged"] = bdl.predict(model, x, samples=samples, verbose=0).mean
    return result


def volume(strategy, folder):
    """Returns the sizes of the tensors that workers exchange in a step."""
    sizes = {}
    for name in ("SGD", "ATMC", "VOGN"):
        model = compiled(strategy, METHODS[name])
        fitted(model, epochs=1)
        step = tf.function(
            lambda x, y: strategy.run(model.train_step, ((x, y),)),  # noqa: B023
            autograph=False,
        )
        graph = step.get_concrete_function(*data(16)).graph
        sizes[name] = sorted(
            int(np.prod(operation.inputs[0].shape))
            for operation in graph.get_operations()
            if operation.type.startswith("CollectiveReduce")
        )
    return {"sizes": sizes, "weights": model.count_params()}


def own_data(strategy, folder):
    """A method that uses N, with other data on each worker."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    examples = tf.data.Dataset.from_tensor_slices(data(16)).batch(8)
    said = {}
    for name, size in (("SGLD", None), ("SGLD of 32", 32)):
        model = compiled(strategy, lambda: bdl.SGLD(1e-3, size))  # noqa: B023
        try:
            examples = examples.with_options(options)
            model.fit(examples, shuffle=False, verbose=0)
            said[name] = int(model.optimizer.iterations.numpy())
        except ValueError as error:
            said[name] = str(error)
    return said


def counted(strategy, folder):
    """Data of which only reading tells the size: N in each epoch."""
    x, y = data()
    sizes = [(0, 16), (16, 20), (20, 36), (36, 49)]
    batches = tf.data.Dataset.from_generator(
        lambda: ((x[a:b], y[a:b]) for a, b in sizes),
        output_signature=(
            tf.TensorSpec((None, 4)),
            tf.TensorSpec((None,), "int32"),
        ),
    ).apply(tf.data.experimental.assert_cardinality(4))
    model = compiled(strategy, METHODS["SGLD"], kind=Counted)
    size, found = model.optimizer.dataset_size, []
    ns = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: found.append(size.counted)
    )
    model.fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=[ns])
    return {"found": found, "traces": model.traces}


def unlike_seeds(strategy, folder):
    """Workers with different seeds for their shuffling."""
    model = compiled(strategy, METHODS["SGD"])
    keras.utils.set_random_seed(1 + strategy.cluster_resolver.task_id)
    try:
        fitted(model)
    except ValueError as error:
        return {"said": str(error)}


def own_noise(strategy, folder):
    """Workers that draw different seeds, or are given different seeds."""
    worker = strategy.cluster_resolver.task_id
    x, y = data(48)
    said, found = "", {}
    for seed in (None, worker):
        keras.utils.set_random_seed(1 + worker)
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            model.compile(bdl.SGLD(1e-2, 48, seed=seed), LOSS)
        epochs = bdl.datasets.EpochCounter()
        batches = epochs.batches((x, y), BATCH_SIZE, seed=1)
        try:
            model.fit(
                batches, epochs=2, shuffle=False, verbose=0, callbacks=[epochs]
            )
            found = {**state(model), "seed": model.optimizer.seed}
        except ValueError as error:
            said = str(error)
    with strategy.scope():
        net = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        objective = bdl.objectives.SampledVI("scalar", seed=0)
        net.compile("sgd", LOSS, objective=objective)
    return {**found, "said": said, "objective": objective.seed}


def plain_keras(strategy, folder):
    """A sampler with a plain Keras model."""
    model = compiled(
        strategy,
        lambda: bdl.ATMC(1e-2, dataset_size=48),
        kind=keras.Sequential,
    )
    fitted(model, num_examples=48, validation_data=data(16))
    predicted = model.predict(data(21)[0], batch_size=16, verbose=0)
    return {**state(model), "predicted": predicted}


def collected(strategy, folder):
    """Posteriors and files of callbacks, with BatchNorm and dropout."""
    model = compiled(
        strategy,
        METHODS["SGD"],
        lambda: [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)],
    )
    swag = bdl.SWAG(start_epoch=0, rank=2)
    swa = bdl.SWA(start_epoch=0)
    in_memory = bdl.callbacks.SampleCollector(2, unit="step")
    on_disk = bdl.callbacks.SampleCollector(
        2,
        unit="step",
        max_samples=3,
        directory=os.path.join(folder, "samples"),
    )
    validation = bdl.callbacks.EnsembleValidation(on_disk, data(21))
    checkpoint = bdl.callbacks.Checkpoint(
        os.path.join(folder, "checkpoint"), every=3
    )
    with counted_writes() as writes:
        callbacks = [swag, swa, in_memory, on_disk, validation, checkpoint]
        fitted(model, epochs=3, callbacks=callbacks)
    x, _ = data(21)
    train = tf.data.Dataset.from_tensor_slices(data()[0]).batch(BATCH_SIZE)
    dropout = bdl.posteriors.MCDropout()
    return {
        **state(model),
        "statistics": model.layers[1].moving_mean.numpy(),
        "swag": swag.posterior.get_state(),
        "swa": swa.posterior.get_state(),
        "in_memory": in_memory.posterior.get_state(),
        "on_disk": on_disk.posterior.get_state(),
        "averaged": bdl.predict(
            model, x, in_memory.posterior, batch_size=16, verbose=0
        ).mean,
        "dropped": bdl.predict(
            model, x, dropout, samples=3, batch_size=16, verbose=0
        ).mean,
        "estimated": bdl.predict(
            model,
            x,
            swag.posterior,
            samples=2,
            batch_norm_data=train,
            verbose=0,
        ).mean,
        "plain": bdl.predict(model, x, batch_size=16, verbose=0).mean,
        "writes": len(writes),
    }


class counted_writes:
    """Counts the files that a block writes."""

    def __enter__(self):
        self.replace, writes = os.replace, []

        def replace(*args):
            writes.append(args)
            return self.replace(*args)

        os.replace = replace
        return writes

    def __exit__(self, *_):
        os.replace = self.replace


def evaluated(strategy, folder):
    """The steps after training. Each worker saves to the same file."""
    model = fitted(compiled(strategy, METHODS["SGD"]), epochs=1)
    laplace = bdl.fit_laplace(model, data(), prior_precision=1.0, verbose=0)
    path = os.path.join(folder, "laplace.bdl")
    laplace.save(path)
    loaded = bdl.posteriors.load(path)
    x, y = data(21)
    prediction = bdl.predict(model, x, loaded, samples=3, verbose=0)
    # One label is not the most probable, so the temperature is finite.
    y = np.argmax(prediction.mean, axis=-1)
    y[0] = 1 - y[0]
    scaling = bdl.prediction.TemperatureScaling().fit(prediction, y)
    return {
        "laplace": loaded.get_state(),
        "temperature": scaling.temperature,
        "report": bdl.evaluate(scaling(prediction), y).to_dict(),
    }


def monte_carlo(strategy, folder):
    """The same batch on all replicas, each with other samples."""
    model = compiled(strategy, METHODS["VOGN"], sample_replicas=2)
    return state(fitted(model, epochs=1))


def empty(strategy, folder):
    """BatchNorm if a replica has no example in the last batch."""
    model = compiled(
        strategy,
        METHODS["SGD"],
        lambda: [keras.layers.BatchNormalization()],
    )
    fitted(model)
    return {**state(model), "local": local_values(model)}


class Killed(Exception):
    pass


class KilledAt(keras.callbacks.Callback):
    def __init__(self, *moment):
        super().__init__()
        self.moment = moment

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.moment:
            raise Killed


def long_run(strategy, folder, *callbacks):
    """The run of `killed_run.py`, with every state that a kill may destroy."""
    model = compiled(
        strategy,
        METHODS["ATMC"],
        lambda: [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)],
    )
    samples = bdl.callbacks.SampleCollector(
        6, unit="step", directory=os.path.join(folder, "samples")
    )
    swag = bdl.SWAG(start_epoch=1, rank=3)
    checkpoint = bdl.callbacks.Checkpoint(
        os.path.join(folder, "checkpoint"), every=3
    )
    callbacks = [*callbacks, samples, swag, checkpoint]
    fitted(model, epochs=8, callbacks=callbacks)
    return {
        **state(model),
        "local": local_values(model),
        "samples": samples.posterior.get_state(),
        "swag": swag.posterior.get_state(),
    }


def resumed(strategy, folder):
    """The same run, killed within an epoch and started again."""
    killed = False
    try:
        long_run(strategy, folder, KilledAt(4, 1))
    except Killed:
        killed = True
    return {**long_run(strategy, folder), "killed": killed}


CASES = {
    **{name: functools.partial(method, name) for name in ALL},
    "plain_keras": plain_keras,
    "volume": volume,
    "counted": counted,
    "unlike_seeds": unlike_seeds,
    "own_noise": own_noise,
    "own_data": own_data,
    "collected": collected,
    "evaluated": evaluated,
    "monte_carlo": monte_carlo,
    "long_run": long_run,
    "resumed": resumed,
    "empty": empty,
}
CASES_OF_WORKERS = [n for n in CASES if n in ON_WORKERS or n not in ALL]
