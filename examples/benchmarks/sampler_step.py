"""Cost of a step of a sampler, relative to SGD with momentum.

    python examples/benchmarks/sampler_step.py [--smoke]
        [--networks ResNet++-20 MLP]

Batches of 128: images of 32x32 pixels for ResNet++-20, 784 numbers for the MLP
784-400-400-10. Both steps run in turns on the same data, so that other work on
the machine slows both; the median of the paired ratios is printed, with a 95 %
interval.
"""

import argparse
import functools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from curvature import BATCH
from curvature import mlp
from curvature import steps_of
from timing import ratio
from timing import show_control

import keras_bdl as bdl


def resnet():
    return bdl.applications.ResNetPlusPlus(20, dataset_size=50_000)


# Networks, and rounds of measurement.
NETWORKS = {
    "ResNet++-20": (resnet, 40),
    "MLP": (mlp, 200),
}
SAMPLERS = {
    "ATMC": bdl.ATMC,
    "ATMC, a mass for each variable": functools.partial(
        bdl.ATMC, precondition_every=10
    ),
    "SGNHT": bdl.SGNHT,
    "SGHMC": bdl.SGHMC,
    "SGLD": bdl.SGLD,
}


def sgd(name):
    """Returns a network, an optimizer and other arguments of `compile`."""
    return NETWORKS[name][0](), keras.optimizers.SGD(1e-3, momentum=0.9), {}


def sampled(sampler, name):
    """Returns a network, an optimizer and other arguments of `compile`."""
    return NETWORKS[name][0](), sampler(dataset_size=50_000), {}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument(
        "--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS]
    )
    options = parser.parse_args()
    batch = 8 if options.smoke else BATCH
    for name in ["MLP"] if options.smoke else options.networks:
        rounds = 1 if options.smoke else NETWORKS[name][1]
        plain = steps_of(sgd, name, batch)
        show_control(plain, rounds)
        for sampler, make in SAMPLERS.items():
            ours = steps_of(functools.partial(sampled, make), name, batch)
            what = f"{name}, {sampler} / SGD"
            print(f"{what:52}{ratio(ours, plain, rounds)!s:>22}", flush=True)


if __name__ == "__main__":
    main()
