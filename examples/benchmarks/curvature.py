"""What per-example second moments cost, in training steps of Adam.

    python examples/benchmarks/curvature.py [--smoke]

Whole steps with batches of 128 are measured in turns, so that whatever else
the machine is doing falls on both, and the ratio of the best times is printed.
The step is that of VOGN: one draw of all weights, gradients and second
moments, two moving averages. Peak memory is that of a process of its own.
With the extra `bench` installed, the same nets are measured in PyTorch with
the squares of BackPACK, again in steps of Adam.
"""

import argparse
import math
import os
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from timing import ratio

from keras_bdl.curvature import step

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


class VOGNState:
    """What a step of VOGN keeps: averages of g and h, and their number."""

    def __init__(self, variables):
        self.momenta = [tf.Variable(tf.zeros(v.shape)) for v in variables]
        self.squares = [tf.Variable(tf.fill(v.shape, 0.1)) for v in variables]
        self.count = tf.Variable(0)

    def draw(self, variables, index):
        sizes = [math.prod(v.shape) for v in variables]
        seed = tf.stack([self.count, index])
        noise = tf.split(tf.random.stateless_normal([sum(sizes)], seed), sizes)
        return [
            v.value + tf.reshape(e, v.shape) * tf.math.rsqrt(5e4 * (s + 1e-3))
            for v, e, s in zip(variables, noise, self.squares, strict=True)
        ]

    def update(self, variables, steps, due):
        for i, v in enumerate(variables):
            g = sum(s.gradients[i] for s in steps) / len(steps)
            h = sum(s.squares[i] for s in steps) / len(steps)
            m, s = self.momenta[i], self.squares[i]
            new = 0.999 * s + 0.001 * h
            s.assign(new if due is None else tf.where(due, new, s))
            m.assign(0.9 * m + g + 1e-5 * v.value)
            v.assign_sub(1e-4 * m / (s + 1e-3))
        self.count.assign_add(1)


class Curved(keras.Model):
    """A model whose training step is one of VOGN, in its shortest form."""

    state = None
    draws, every = 1, 1

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        due = None
        if self.every > 1:
            due = tf.equal(self.state.count % self.every, 0)
        steps = [
            step(self, x, y, values=self.state.draw(variables, k), due=due)
            for k in range(self.draws)
        ]
        self.state.update(variables, steps, due)
        self._loss_tracker.update_state(steps[0].loss)
        return {"loss": self._loss_tracker.result()}


NETS = {"ResNet-20": resnet20, "LeNet-5": lenet, "MLP": mlp}


def batch_of(net, batch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, *net.input_shape[1:])).astype("float32")
    return x, rng.integers(0, 10, batch)


def steps_of(make, batch, curved=False, steps=1, **options):
    """A function that trains for some steps, on one batch.

    Not by `fit`, which ends with a wait of its own.
    """
    keras.utils.set_random_seed(0)
    net = make()
    if curved:
        net = Curved(net.inputs, net.outputs)
        for name, value in options.items():
            setattr(net, name, value)
        net.state = VOGNState(net.trainable_variables)
    net.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    net.optimizer.build(net.trainable_variables)
    data = tf.data.Dataset.from_tensors(batch_of(net, batch)).repeat()
    iterator = iter(data)
    net.make_train_function()

    def run():
        for _ in range(steps):
            logs = net.train_function(iterator)
        return float(logs["loss"])

    return run


def memory(name, curved, batch):
    """Peak memory of a process that trains a net, MiB."""
    code = (
        f"import curvature; curvature.train_alone({name!r}, {curved}, {batch})"
    )
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return float(output.split()[-1])


def train_alone(name, curved, batch):
    import resource

    run = steps_of(NETS[name], batch, curved)
    for _ in range(4):
        run()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def backpack_steps(name, batch):
    """Steps of Adam in PyTorch, with the squares of BackPACK and without."""
    import backpack
    import torch
    from backpack.extensions import SumGradSquared
    from torch import nn

    torch.set_num_threads(os.cpu_count())
    nets = {
        "MLP": lambda: nn.Sequential(
            nn.Linear(784, 400),
            nn.ReLU(),
            nn.Linear(400, 400),
            nn.ReLU(),
            nn.Linear(400, 10),
        ),
        "LeNet-5": lambda: nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        ),
    }
    x, y = batch_of(NETS[name](), batch)
    x, y = (
        torch.tensor(np.moveaxis(x, -1, 1) if x.ndim == 4 else x),
        torch.tensor(y),
    )

    def steps(squares):
        net, loss = nets[name](), nn.CrossEntropyLoss()
        if squares:
            net, loss = backpack.extend(net), backpack.extend(loss)
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)

        def run():
            optimizer.zero_grad()
            value = loss(net(x), y)
            if squares:
                with backpack.backpack(SumGradSquared()):
                    value.backward()
            else:
                value.backward()
            optimizer.step()
            return float(value.detach())

        return run

    return steps(True), steps(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    smoke = parser.parse_args().smoke
    batch = 8 if smoke else BATCH

    def show(what, value, bound=""):
        bound = f"  ({bound})" if bound else ""
        print(f"{what:52}{value:8.3f}{bound}", flush=True)

    def compare(name, rounds, **options):
        rounds = 1 if smoke else rounds
        steps = options.get("steps", 1)
        ours = steps_of(NETS[name], batch, True, **options)
        adam = steps_of(NETS[name], batch, steps=steps)
        return ratio(ours, adam, rounds)

    bounds = {"ResNet-20": (40, 1.5), "LeNet-5": (200, 1.6), "MLP": (200, 2.0)}
    for name, (rounds, bound) in bounds.items():
        if smoke and name == "ResNet-20":
            continue
        show(f"{name}, second moments / Adam", compare(name, rounds), bound)
        if name == "LeNet-5" or not smoke:
            ours = steps_of(NETS[name], batch, True, draws=2)
            once = steps_of(NETS[name], batch, True)
            value = ratio(ours, once, 1 if smoke else rounds // 2)
            show(f"{name}, two draws / one", value, "2.0")
    name = "LeNet-5" if smoke else "ResNet-20"
    value = compare(name, 5, every=10, steps=10)
    show(f"{name}, every tenth step / Adam", value, "1.2")
    start = time.perf_counter()
    steps_of(NETS[name], batch, True)()
    show(f"{name}, seconds to trace", time.perf_counter() - start, "10")
    peaks = [memory(name, curved, batch) for curved in (True, False)]
    value = peaks[0] / peaks[1]
    show(f"{name}, peak memory / Adam", value, f"1.25; {peaks[1]:.0f} MiB")
    try:
        import backpack  # noqa: F401
    except ImportError:
        print("BackPACK is not installed")
        return
    for name in ("LeNet-5", "MLP"):
        value = ratio(*backpack_steps(name, batch), 1 if smoke else 200)
        show(f"{name}, BackPACK / Adam of PyTorch", value)


if __name__ == "__main__":
    main()
