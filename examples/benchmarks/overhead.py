"""Cost of `keras_bdl` on top of Keras, as ratios measured in one run.

    python examples/benchmarks/overhead.py [--smoke]

Both functions of a pair run in turns, so that other work on the machine slows
both; the median of the paired ratios is printed, with a 95 % interval. The two
replicas are logical CPUs of one machine, so communication costs almost nothing
here.
"""

import argparse
import contextlib
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from timing import peak_memory
from timing import ratio
from timing import text
from timing import timed

import keras_bdl as bdl

BATCH = 64


def make(model_class, width):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((32, 32, 3))
    x = inputs
    for filters in (width, 2 * width):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.Activation("relu")(x)
        x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(8 * width, activation="relu")(x)
    model = model_class(inputs, keras.layers.Dense(10)(x))
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def data(examples):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(examples, 32, 32, 3)).astype("float32")
    return x, rng.integers(0, 10, examples)


def step(model_class, rounds, examples, width, scope=contextlib.nullcontext):
    x, y = data(examples)
    with scope():
        ours, theirs = make(model_class, width), make(keras.Model, width)
    return ratio(
        lambda: ours.fit(x, y, batch_size=BATCH, verbose=0),
        lambda: theirs.fit(x, y, batch_size=BATCH, verbose=0),
        rounds,
    )


def first_step(rounds, width):
    """Returns the ratio for the first step, which Keras traces twice."""
    x, y = data(BATCH)

    def wait(model_class):
        return lambda: make(model_class, width).fit(x, y, verbose=0)

    return ratio(wait(bdl.Model), wait(keras.Model), rounds)


def collection(rounds, examples, width):
    """Returns the share of an epoch's time that SWAG's collection takes."""
    x, y = data(examples)
    model = make(keras.Model, width)
    swag = bdl.SWAG(start_epoch=0, rank=20)
    seconds = []
    collect = swag.on_epoch_end

    def timed_collect(epoch, logs=None):
        seconds.append(timed(lambda: collect(epoch, logs)))

    swag.on_epoch_end = timed_collect
    epochs = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            epochs.append(time.perf_counter() - self.start)

    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=rounds + 2,
        verbose=0,
        callbacks=[Clock(), swag],
    )
    return np.median(seconds[2:]) / np.median(epochs[2:])


def prediction(rounds, examples, width, samples):
    x, y = data(examples)
    model = make(keras.Model, width)
    swag = bdl.SWAG(start_epoch=0, rank=5)
    model.fit(x, y, batch_size=BATCH, epochs=6, verbose=0, callbacks=[swag])
    posterior = swag.posterior

    def plain():
        for _ in range(samples):
            model.predict(x, batch_size=BATCH, verbose=0)

    def ours():
        bdl.predict(
            model, x, posterior, samples=samples, batch_size=BATCH, verbose=0
        )

    return ratio(ours, plain, rounds)


def memory_of_draws(numbers, examples):
    """Returns the peak memory that `predict` adds, for numbers of draws.

    Args:
        numbers: Numbers of posterior samples, growing: a peak never falls.
        examples: Number of inputs.
    """
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(100)])
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    weights = model.get_weights()
    posterior = bdl.posteriors.Gaussian(weights, [abs(w) for w in weights])
    x = np.ones((examples, 64), "float32")
    options = {"batch_size": 1000, "verbose": 0}
    bdl.predict(model, x[:1000], posterior, samples=2, **options)  # trace
    before = peak_memory()
    added = []
    for samples in numbers:
        bdl.predict(model, x, posterior, samples=samples, **options)
        added.append(peak_memory() - before)
    return added


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    smoke = parser.parse_args().smoke
    rounds, examples, width = (1, 128, 4) if smoke else (40, 1024, 16)
    draws, inputs = (3, 50_000) if smoke else (30, 100_000)
    fewest, most = (2, 5) if smoke else (5, 50)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )

    def show(what, value, bound):
        print(f"{what:52}{text(value):>22}  ({bound})", flush=True)

    few, many = memory_of_draws((fewest, most), inputs)
    show(
        f"peak memory that predict adds, {most} draws / {fewest} draws",
        many / few,
        f"within 10 %; {few:.0f} MiB, {many:.0f} MiB",
    )
    value = step(keras.Model, rounds, examples, width)
    show("training step, keras / keras", value, "1: the noise of the next")
    value = step(bdl.Model, rounds, examples, width)
    show("training step, keras_bdl / keras", value, "at most 1.02")
    scope = bdl.distribute.strategy("mirrored").scope
    value = step(bdl.Model, rounds, examples, width, scope)
    show("the same on two replicas", value, "at most 1.05")
    value = first_step(max(rounds // 8, 1), width)
    show("a new network and its first step", value, "below 1")
    for more in (1,) if smoke else (1, 4):
        value = collection(rounds, more * examples, width)
        epoch = f"an epoch of {more * examples // BATCH} batches"
        show(f"SWAG collection / {epoch}", value, "at most 0.01")
    value = prediction(max(rounds // 8, 1), examples, width, draws)
    what = f"predict, {draws} draws / {draws} plain predicts"
    show(what, value, "at most 1.1")


if __name__ == "__main__":
    main()
