"""Cost of variational objectives, relative to training steps of Adam.

    python examples/benchmarks/objectives.py [--smoke]

The network is a PreActResNet-18 with softplus and a quarter of its width, on
images of 32 x 32 pixels. Both training steps of a pair run in turns, so that
other work on the machine slows both; the median of the paired ratios is
printed, with a 95 % interval. Peak memory is that of a separate process.
"""

import argparse
import functools
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from timing import in_new_process
from timing import peak_memory
from timing import ratio
from timing import show_control
from timing import text

import keras_bdl as bdl
from keras_bdl.objectives import MAP
from keras_bdl.objectives import Hutchinson
from keras_bdl.objectives import PerExampleFisher
from keras_bdl.objectives import SampledVI
from keras_bdl.objectives import TaylorVI

BATCH = 64
NETWORK = functools.partial(
    bdl.applications.PreActResNet18, filters=16, activation="softplus"
)
# The network of `--smoke`.
SMALL = functools.partial(
    bdl.applications.PreActResNet, 8, filters=2, activation="softplus"
)

OBJECTIVES = {
    "MAP": MAP,
    "SampledVI, diagonal": lambda: SampledVI("diagonal"),
    "TaylorVI, fixed": lambda: TaylorVI("fixed", 1e-3),
    "TaylorVI, scalar": lambda: TaylorVI("scalar"),
    "TaylorVI, diagonal": lambda: TaylorVI("diagonal"),
    "TaylorVI, groups of 16": lambda: TaylorVI(
        "diagonal", gradient_batch_size=16
    ),
    "TaylorVI, per-example Fisher": lambda: TaylorVI(
        "diagonal", hessian_diagonal=PerExampleFisher()
    ),
    "TaylorVI, Hutchinson": lambda: TaylorVI(
        "diagonal", hessian_diagonal=Hutchinson()
    ),
}


def steps_of(objective, batch=BATCH, network=NETWORK, jit_compile=False):
    """Returns a function that trains for one step, on the same batch.

    The function does not call `fit`, whose waiting time would count too.
    """
    keras.utils.set_random_seed(0)
    net = network()
    net.compile(
        keras.optimizers.Adam(1e-4),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        objective=objective,
        jit_compile=jit_compile,
    )
    if objective is None:
        net.optimizer.build(net.trainable_variables)
    else:
        objective.dataset_size.count(50_000)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, 32, 32, 3)).astype("float32")
    data = x, rng.integers(0, 10, batch)
    iterator = iter(tf.data.Dataset.from_tensors(data).repeat())
    net.make_train_function()
    return lambda: float(net.train_function(iterator)["loss"])


def memory(name):
    """Trains, and returns the peak memory of the process in MiB."""
    run = steps_of(OBJECTIVES[name]() if name else None)
    for _ in range(4):
        run()
    return peak_memory()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    smoke = parser.parse_args().smoke
    batch, network, rounds = (4, SMALL, 1) if smoke else (BATCH, NETWORK, 40)
    names = ["TaylorVI, diagonal"] if smoke else list(OBJECTIVES)

    def show(what, value, bound=""):
        bound = f"  ({bound})" if bound else ""
        print(f"{what:52}{text(value):>22}{bound}", flush=True)

    if not smoke:
        usual = in_new_process(memory, "")
        show("plain step, peak memory, MiB", usual)
        for name in ("TaylorVI, diagonal", "TaylorVI, groups of 16"):
            peak = in_new_process(memory, name)
            show(f"{name}, peak memory / plain step", peak / usual)

    plain = steps_of(None, batch, network)
    show_control(plain, rounds)
    for name in names:
        start = time.perf_counter()
        ours = steps_of(OBJECTIVES[name](), batch, network)
        ours()
        traced = time.perf_counter() - start
        bound = "2.3" if name == "TaylorVI, diagonal" else ""
        show(f"{name}, step / plain step", ratio(ours, plain, rounds), bound)
        if bound:
            show(f"{name}, seconds to trace", traced)
    if smoke:
        return
    compiled = [
        steps_of(one, jit_compile=True)
        for one in (OBJECTIVES["TaylorVI, diagonal"](), None)
    ]
    show("TaylorVI, diagonal, both by XLA", ratio(*compiled, rounds))


if __name__ == "__main__":
    main()
