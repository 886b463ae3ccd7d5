"""Cost of a step of a sampler, relative to SGD with momentum.

    python examples/benchmarks/sampler_step.py [--smoke]

The network is ResNet++-20 on batches of 128 images of 32x32 pixels. Both steps
run in turns on the same data, so that other work on the machine slows both; the
median of the paired ratios is printed, with a 95 % interval.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from timing import ratio
from timing import show_control

import keras_bdl as bdl

SAMPLERS = {
    "ATMC": bdl.ATMC(),
    "ATMC, a mass for each variable": bdl.ATMC(precondition_every=10),
    "SGNHT": bdl.SGNHT(),
    "SGHMC": bdl.SGHMC(),
    "SGLD": bdl.SGLD(),
}


def network(smoke):
    """A ResNet++; two dense layers if only the code is tried."""
    if smoke:
        return bdl.applications.MultiHeadMLP((32, 32, 3), 1, 10, units=(8,))
    return bdl.applications.ResNetPlusPlus(20)


def make(optimizer, smoke):
    keras.utils.set_random_seed(0)
    model = network(smoke)
    model.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def steps_of(model, batch_size, steps):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps * batch_size, 32, 32, 3)).astype("float32")
    y = rng.integers(0, 10, len(x))
    return lambda: model.fit(x, y, batch_size=batch_size, verbose=0)


def numbers_kept(model):
    """Returns how many numbers the optimizer stores for each weight."""
    slots = sum(np.prod(v.shape) for v in model.optimizer.variables)
    return slots / model.count_params()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    smoke = parser.parse_args().smoke
    batch_size, steps, rounds = (8, 2, 1) if smoke else (128, 1, 40)

    plain = make(keras.optimizers.SGD(1e-3, momentum=0.9), smoke)
    theirs = steps_of(plain, batch_size, steps)
    show_control(theirs, rounds)
    print(f"{'sampler':34}{'time / SGD':>22}{'slots / weight':>16}")
    for name, sampler in SAMPLERS.items():
        model = make(sampler, smoke)
        value = ratio(steps_of(model, batch_size, steps), theirs, rounds)
        print(f"{name:34}{value!s:>22}{numbers_kept(model):16.3f}", flush=True)


if __name__ == "__main__":
    main()
