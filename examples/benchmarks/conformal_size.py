"""Times a calibration on a million rows of a thousand classes.

    python examples/benchmarks/conformal_size.py [--smoke]
    python examples/benchmarks/conformal_size.py --rows 200000 --classes 1000

Calibrates and evaluates on made-up float32 predictions in a memory map on disk,
4 GB for a million rows of a thousand classes. Prints the time and the largest
memory of the process, without the map. Needs the extra `bench`.
"""

import argparse
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import psutil

from keras_bdl import conformal as cf
from keras_bdl.prediction import ClassificationPrediction


def large(rows, classes):
    """Calibrates on one half and evaluates on the other."""
    process = psutil.Process()
    rng = np.random.default_rng(0)
    with tempfile.NamedTemporaryFile() as file:
        shape = (rows, classes)
        log_mean = np.memmap(file.name, "float32", "w+", shape=shape)
        y = np.empty(rows, "int64")
        for start in range(0, rows, 10_000):
            part = log_mean[start : start + 10_000]
            logits = rng.standard_normal(part.shape, "float32") * 3
            # The label has the law of the model.
            noise = rng.gumbel(size=part.shape).astype("float32")
            y[start : start + 10_000] = (logits + noise).argmax(1)
            logits -= logits.max(1, keepdims=True)
            part[:] = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        log_mean.flush()
        half = rows // 2
        predictions = [
            ClassificationPrediction(
                values,
                expected_entropy=np.zeros(len(values)),
                stddev=np.broadcast_to(np.float32(0), values.shape),
                votes=np.broadcast_to(np.int8(0), values.shape),
            )
            for values in (log_mean[:half], log_mean[half:])
        ]
        del part
        print(f"{rows} rows of {classes} classes, half of them calibration")
        print(f"{'':20}{'fit, s':>10}{'evaluate, s':>13}{'MiB':>10}", end="")
        print(f"{'coverage':>10}{'size':>10}")
        for method in (
            cf.LAC(),
            cf.APS(),
            cf.RAPS(),
            cf.LAC(per_class=True),
            cf.APS(per_class=True),
        ):
            peak = [anonymous(process)]
            blocks = method.blocks

            def watched(prediction, blocks=blocks, peak=peak):
                for item in blocks(prediction):
                    yield item
                    peak.append(anonymous(process))

            method.blocks = watched
            start = time.perf_counter()
            method.fit(predictions[0], y[:half])
            fitted = time.perf_counter()
            report = method(predictions[1]).evaluate(y[half:])
            end = time.perf_counter()
            name = type(method).__name__ + " per class" * method.per_class
            print(
                f"{name:20}{fitted - start:10.1f}{end - fitted:13.1f}"
                f"{max(peak) / 2**20:10.0f}"
                f"{report.coverage:10.4f}{report.mean_size:10.2f}"
            )


def anonymous(process):
    """Returns the memory of the process without the mapped file."""
    info = process.memory_info()
    return info.rss - getattr(info, "shared", 0)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    args = parser.parse_args()
    if args.smoke:
        large(2000, 20)
    else:
        large(args.rows, args.classes)


if __name__ == "__main__":
    main()
