"""Time of the last layer's Laplace approximation as the classes grow.

    python examples/benchmarks/growth_classes.py [--smoke]

A ResNet-20 with 256 features and 2,000 images. Each number of classes runs in a
process of its own. "pass" is a forward pass over the images, `predict`, traced
before. "fit" is `fit_laplace` with its defaults, with its traces. "algebra" is
the part of it for eigenvectors. "passes" is the rest of the fit divided by the
pass. The exponent b is that of `fit = a classes^b` up to 1,000 classes.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from timing import in_new_process
from timing import peak_memory
from timing import timed

import keras_bdl as bdl

CLASSES, SMOKE = (10, 100, 1000, 10_000), (3, 10)


def network(classes, depth=20):
    """A residual network with 256 features before the last layer."""
    keras.utils.set_random_seed(0)
    images = bdl.applications.ResNet(depth, include_top=False)
    x = keras.layers.GlobalAveragePooling2D()(images.outputs[0])
    x = keras.layers.Dense(256, "relu")(x)
    outputs = keras.layers.Dense(classes)(x)
    model = keras.Model(images.inputs, outputs)
    model.compile(
        "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def measured(classes, examples, depth):
    """Returns seconds of a pass, a fit and its algebra, and the peak in MiB."""
    model = network(classes, depth)
    rng = np.random.default_rng(0)
    x = rng.random((examples, 32, 32, 3), dtype="float32")
    y = rng.integers(0, classes, examples)
    model.predict(x[:32], verbose=0)
    algebra, eigh = [], np.linalg.eigh

    def timed_eigh(matrix):
        start = time.perf_counter()
        found = eigh(matrix)
        algebra.append(time.perf_counter() - start)
        return found

    forward = [timed(lambda: model.predict(x, verbose=0))]
    np.linalg.eigh = timed_eigh
    fit = timed(lambda: bdl.fit_laplace(model, (x, y), verbose=0))
    # Other work on the machine changes: once before and once after.
    forward.append(timed(lambda: model.predict(x, verbose=0)))
    return np.mean(forward), fit, sum(algebra), peak_memory()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    smoke = parser.parse_args().smoke
    columns = ("classes", "pass, s", "fit, s", "algebra, s", "passes", "MiB")
    print("".join(f"{name:>12}" for name in columns))
    sizes, fits = (SMOKE if smoke else CLASSES), []
    for classes in sizes:
        forward, fit, algebra, memory = in_new_process(
            measured, classes, *((64, 8) if smoke else (2000, 20))
        )
        passes = (fit - algebra) / forward
        print(
            f"{classes:12,}{forward:12.2f}{fit:12.2f}{algebra:12.2f}"
            f"{passes:12.2f}{memory:12.0f}",
            flush=True,
        )
        fits.append(fit - algebra)
    few = [i for i, classes in enumerate(sizes) if classes <= 1000]
    logs = np.log(sizes)[few], np.log(fits)[few]
    print(f"exponent {np.polyfit(*logs, 1)[0]:.2f}")


if __name__ == "__main__":
    main()
