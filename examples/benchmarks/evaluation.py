"""Time and memory of a report on many predictions of many classes.

    python examples/benchmarks/evaluation.py [--rows 1000000] [--classes 1000]

The probabilities are float32 and made here. Prints how long
`keras_bdl.evaluate` takes, and how far its peak of memory is above the memory
that the predictions themselves take. Needs the extra `bench`.
"""

import argparse
import os
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import psutil

import keras_bdl as bdl


class Peak:
    """The largest memory of this process inside of a `with` block."""

    def __enter__(self):
        self._done = threading.Event()
        self.before = self.most = self._memory()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _watch(self):
        while not self._done.wait(0.02):
            self.most = max(self.most, self._memory())

    def _memory(self):
        return psutil.Process().memory_info().rss / 2**20


def predictions(rows, classes):
    """Returns a prediction, and labels of which half are right."""
    rng = np.random.default_rng(0)
    log_mean = np.empty((rows, classes), "float32")
    for start in range(0, rows, 10_000):
        part = log_mean[start : start + 10_000]
        part[:] = 3 * rng.standard_normal(part.shape, dtype="float32")
        part -= np.log(np.exp(part).sum(-1, keepdims=True))
    y = rng.integers(classes, size=rows)
    y = np.where(rng.random(rows) < 0.5, log_mean.argmax(-1), y)
    return bdl.prediction.ClassificationPrediction(log_mean), y


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    arguments = parser.parse_args()
    rows, classes = arguments.rows, arguments.classes
    if arguments.smoke:
        rows, classes = 1000, 10
    prediction, y = predictions(rows, classes)
    size = prediction.log_mean.nbytes / 2**20
    print(f"{rows} predictions of {classes} classes, {size:.0f} MiB")
    with Peak() as peak:
        start = time.perf_counter()
        report = bdl.evaluate(prediction, y)
        seconds = time.perf_counter() - start
    print(f"evaluate: {seconds:.1f} s, {peak.most - peak.before:.0f} MiB more")
    print(f"accuracy {report.accuracy:.4f}, NLL {report.nll:.4f}")


if __name__ == "__main__":
    main()
