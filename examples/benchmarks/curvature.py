"""Cost of per-example second moments, relative to steps of Adam.

    python examples/benchmarks/curvature.py [--smoke] [--networks LeNet-5 MLP]

Measures whole steps of `VOGN` and its relatives, including the draws of the
weights, in batches of 128. Both steps of a pair run in turns, so that other
work on the machine slows both; the median of the paired ratios is printed, with
a 95 % interval. Peak memory is that of a separate process. With the extra
`bench` installed, `backpack_step.py` runs the same networks in PyTorch.
"""

import argparse
import functools
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from timing import in_new_process
from timing import peak_memory
from timing import ratio
from timing import show_control
from timing import text

import keras_bdl as bdl

BATCH = 128


def mlp():
    return keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(400, "relu"),
            layers.Dense(400, "relu"),
            layers.Dense(10),
        ]
    )


def lenet():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(6, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, "relu"),
            layers.Dense(84, "relu"),
            layers.Dense(10),
        ]
    )


def resnet20():
    def conv(x, filters, size=3, strides=1):
        x = layers.Conv2D(filters, size, strides, "same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    inputs = keras.Input((32, 32, 3))
    x = layers.ReLU()(conv(inputs, 16))
    for stage in range(3):
        for block in range(3):
            filters = 16 * 2**stage
            strides = 2 if stage and not block else 1
            y = layers.ReLU()(conv(x, filters, strides=strides))
            y = conv(y, filters)
            shortcut = conv(x, filters, 1, strides) if strides > 1 else x
            x = layers.ReLU()(layers.Add()([y, shortcut]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10)(x))


def preact_resnet():
    return bdl.applications.PreActResNet18(filters=16, activation="softplus")


NETS = {
    "ResNet-20": resnet20,
    "LeNet-5": lenet,
    "MLP": mlp,
    "PreActResNet": preact_resnet,
}


def batch_of(net, batch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, *net.input_shape[1:])).astype("float32")
    return x, rng.integers(0, 10, batch)


def adam(name):
    return NETS[name](), keras.optimizers.Adam(1e-3), {}


def natural(optimizer, name, draws=1, **options):
    """Returns a network, an optimizer and other arguments of `compile`."""
    net = NETS[name]()
    optimizer = optimizer(1e-4, 50_000, prior_precision=50.0, **options)
    net = bdl.Model(net.inputs, net.outputs)
    return net, optimizer, {"train_samples": draws}


class KeepsSquares(keras.Model):
    """Trains as usual and writes the mean squared gradients to variables."""

    def train_step(self, data):
        found = bdl.extend.curvature_step(self, data)
        self.optimizer.apply(found.gradients, self.trainable_variables)
        for variable, square in zip(self.squares, found.squares, strict=True):
            variable.assign(square)
        return {"loss": found.loss}


def adam_and_squares(name):
    """Returns the work of `backpack_step.py`."""
    net = NETS[name]()
    net = KeepsSquares(net.inputs, net.outputs)
    net.squares = [
        tf.Variable(tf.zeros(v.shape)) for v in net.trainable_variables
    ]
    return net, keras.optimizers.Adam(1e-3), {}


vogn = functools.partial(natural, bdl.VOGN)
METHODS = {"Adam": adam, "VOGN": vogn}


def steps_of(method, name, batch, steps=1, **options):
    """Returns a function that trains for some steps, on one batch.

    The function does not call `fit`, whose waiting time would count too.
    """
    keras.utils.set_random_seed(0)
    net, optimizer, arguments = method(name, **options)
    net.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **arguments,
    )
    if "objective" not in arguments:  # it builds the optimizer itself
        net.optimizer.build(net.trainable_variables)
    data = tf.data.Dataset.from_tensors(batch_of(net, batch)).repeat()
    iterator = iter(data)
    net.make_train_function()

    def run():
        for _ in range(steps):
            logs = net.train_function(iterator)
        return float(logs["loss"])

    return run


def memory(method, name, batch):
    """Trains a network, and returns the peak memory of the process in MiB."""
    run = steps_of(METHODS[method], name, batch)
    for _ in range(4):
        run()
    return peak_memory()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    # Rounds, and the targets of VOGN, IVON and Noisy K-FAC.
    bounds = {
        "ResNet-20": (40, "1.25", "1.02", "2.0"),
        "LeNet-5": (200, "1.35", "1.08", "2.0"),
        "MLP": (200, "1.55", "1.5", "3.0"),
    }
    parser.add_argument(
        "--networks", nargs="+", choices=bounds, default=[*bounds]
    )
    options = parser.parse_args()
    smoke = options.smoke
    networks = ["LeNet-5"] if smoke else options.networks
    batch = 8 if smoke else BATCH

    def show(what, value, bound=""):
        bound = f"  ({bound})" if bound else ""
        print(f"{what:52}{text(value):>22}{bound}", flush=True)

    def compare(ours, name, rounds, theirs=adam, steps=1, **options):
        ours = steps_of(ours, name, batch, steps, **options)
        theirs = steps_of(theirs, name, batch, steps)
        return ratio(ours, theirs, 1 if smoke else rounds)

    largest = networks[0]
    peaks = [
        in_new_process(memory, method, largest, batch)
        for method in ("VOGN", "Adam")
    ]
    value = peaks[0] / peaks[1]
    show(
        f"{largest}, VOGN, peak memory / Adam",
        value,
        f"1.15; {peaks[1]:.0f} MiB",
    )
    for name in networks:
        rounds, bound, *of_others = bounds[name]
        plain = steps_of(adam, name, batch, 1)
        show_control(plain, 1 if smoke else rounds)
        show(f"{name}, VOGN / Adam", compare(vogn, name, rounds), bound)
        value = compare(adam_and_squares, name, rounds)
        show(f"{name}, Adam with second moments / Adam", value)
        value = compare(vogn, name, rounds // 2, vogn, draws=2)
        show(f"{name}, VOGN with two draws / one", value, "2.0")
        others = ("IVON", bdl.IVON), ("Noisy K-FAC", bdl.NoisyKFAC)
        for (other, optimizer), bound in zip(others, of_others, strict=True):
            make = functools.partial(natural, optimizer)
            # Twenty steps, one of which decomposes the factors.
            value = compare(make, name, max(rounds // 20, 10), steps=20)
            show(f"{name}, {other} / Adam", value, bound)
    name = largest
    value = compare(vogn, name, 5, steps=10, curvature_every=10)
    show(f"{name}, VOGN, every tenth curvature / Adam", value, "1.2")
    start = time.perf_counter()
    steps_of(vogn, name, batch)()
    show(
        f"{name}, VOGN, seconds to build and trace",
        time.perf_counter() - start,
        "5",
    )
    # PyTorch and TensorFlow cannot always share a process.
    script = Path(__file__).parent / "backpack_step.py"
    subprocess.run([sys.executable, script] + ["--smoke"] * smoke, check=True)


if __name__ == "__main__":
    main()
