"""Time and memory as the work grows: samples, weights.

    python examples/benchmarks/growth.py [NAME ...] [--smoke]

A case has a name, the sizes of one axis, and a function that prepares the work
of one size. Each size runs in a process of its own. "first" is the first call,
which also traces; "next" is a second call. "memory" is the peak of both calls,
minus the memory before them; "held" is the size of the samples that they hold
at once. The exponent b of a case is that of `time = a size^b`, fitted to the
second calls: 1 is linear growth.

To add a case, add an entry to `CASES`.
"""

import argparse
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from timing import in_new_process
from timing import peak_memory

import keras_bdl as bdl


class Case(NamedTuple):
    """One axis of growth.

    Attributes:
        axis: What the sizes count.
        sizes: The sizes.
        smoke: The sizes of `--smoke`.
        prepare: Function of a size that returns the work, a function without
            arguments, and the MiB that the work must hold.
    """

    axis: str
    sizes: tuple
    smoke: tuple
    prepare: Callable


def network(width):
    """A classifier with one hidden layer of `width * width` weights."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(width, "relu"),
            layers.Dense(width, "relu"),
            layers.Dense(10),
        ]
    )
    model.compile(
        "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def swag(model, rank=20):
    """The posterior of SWAG with weights that are all uncertain."""
    mean = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    rng = np.random.default_rng(0)
    columns = [
        rng.random((rank, *m.shape), dtype="float32") * 1e-3 for m in mean
    ]
    variance = [np.full(m.shape, 1e-5, "float32") for m in mean]
    return bdl.posteriors.LowRankGaussian(mean, variance, columns)


def predicted(width, samples):
    """The work of a prediction of 64 examples with SWAG."""
    model = network(width)
    posterior = swag(model)
    x = np.random.default_rng(0).random((64, 64), dtype="float32")
    model.predict(x, verbose=0)
    options = bdl.prediction.PredictOptions()
    stack = 4 * samples * model.count_params()

    def work():
        bdl.predict(model, x, posterior, samples=samples, verbose=0)

    return work, min(stack, options.stack_bytes) / 2**20


def of_samples(samples):
    """A prediction with 148,000 weights."""
    return predicted(350, samples)


def of_weights(weights):
    """A prediction with 10 samples."""
    return predicted(round(weights**0.5) - 37, 10)


CASES = {
    "predict, samples": Case("samples", (10, 100, 1000), (2, 4), of_samples),
    "predict, weights": Case(
        "weights",
        (10**5, 10**6, 10**7, 5 * 10**7),
        (10**4, 2 * 10**4),
        of_weights,
    ),
}


def measured(name, size):
    """Returns seconds of two calls, the memory they add and what they hold."""
    work, held = CASES[name].prepare(size)
    before = resident()
    times = []
    for _ in range(2):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return *times, peak_memory() - before, held


def resident():
    """Returns the memory of this process in MiB; the peak begins anew."""
    Path("/proc/self/clear_refs").write_text("5")  # works on Linux
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def exponent(sizes, times):
    """Returns b of the least squares fit of `log time` in `log size`."""
    return np.polyfit(np.log(sizes), np.log(times), 1)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {list(CASES)}")
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    arguments = parser.parse_args()
    for name in arguments.names or CASES:
        case = CASES[name]
        sizes = case.smoke if arguments.smoke else case.sizes
        print(f"{name:20}{'first, s':>12}{'next, s':>12}", end="")
        print(f"{'memory, MiB':>14}{'held, MiB':>12}")
        times = []
        for size in sizes:
            first, again, memory, held = in_new_process(measured, name, size)
            times.append(again)
            print(
                f"{size:20,}{first:12.2f}{again:12.2f}{memory:14.0f}"
                f"{held:12.0f}",
                flush=True,
            )
        print(f"{'exponent':20}{exponent(sizes, times):24.2f}\n", flush=True)


if __name__ == "__main__":
    main()
