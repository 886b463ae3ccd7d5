"""Where the time of a training step goes, operation by operation.

    python examples/benchmarks/operations.py [--smoke]
    python examples/benchmarks/operations.py --method IVON --network MLP

Runs some steps of a method and of Adam under TensorFlow's profiler, in batches
of 128. For each kind of operation, the table has the time in both steps and how
often the operation runs. Time that an operation waits for threads of its own
counts. Two operations can run at once, so the sum of a column can be more than
the time of a step. The profiler makes small operations slower: compare the
columns, and take ratios of whole steps from the other benchmarks. Operations
inside of a program that XLA compiled, such as the draw of the weights and the
update of large kernels, are not in the table. The largest differences come
first.
"""

import argparse
import collections
import contextlib
import functools
import os
import pathlib
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from curvature import BATCH
from curvature import NETS
from curvature import adam
from curvature import natural
from curvature import steps_of
from curvature import vogn

import keras_bdl as bdl


def mean_field(name):
    """Returns a network, an optimizer and other arguments of `compile`."""
    net = bdl.convert(
        NETS[name](), "mean_field", dataset_size=50_000, verbose=0
    )
    return net, keras.optimizers.Adam(1e-3), {}


def taylor_vi(name):
    """Returns a network, an optimizer and other arguments of `compile`."""
    net = NETS[name]()
    objective = bdl.objectives.TaylorVI("diagonal")
    objective.dataset_size.count(50_000)
    net = bdl.Model(net.inputs, net.outputs)
    return net, keras.optimizers.Adam(1e-3), {"objective": objective}


METHODS = {
    "VOGN": vogn,
    "IVON": functools.partial(natural, bdl.IVON),
    "NoisyKFAC": functools.partial(natural, bdl.NoisyKFAC),
    "mean_field": mean_field,
    "TaylorVI": taylor_vi,
}


@contextlib.contextmanager
def recording(operations):
    """Appends all operations that run in a block: (kind, path, ms)."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder, options):
            yield
        space = xplane_pb2.XSpace()
        (file,) = pathlib.Path(folder).rglob("*.xplane.pb")
        space.ParseFromString(file.read_bytes())
    for plane in space.planes:
        for thread in plane.lines:
            for event in thread.events:
                name = plane.event_metadata[event.metadata_id].name
                path, _, kind = name.rpartition(":")
                if path and kind.isidentifier() and not path.endswith(":"):
                    operations.append((kind, path, event.duration_ps / 1e9))


# Noisy K-FAC has more work in each of its first ten steps.
WARM_UP = 12


def operations_of(method, name, batch, steps):
    """Returns the operations of some steps, after the first ones."""
    run = steps_of(method, name, batch)
    for _ in range(WARM_UP):
        run()
    operations = []
    with recording(operations):
        for _ in range(steps):
            run()
    return operations


def per_step(operations, steps, key):
    """Returns, for each key, the milliseconds and the number of a step."""
    found = collections.defaultdict(lambda: [0.0, 0.0])
    for operation in operations:
        entry = found[key(operation)]
        entry[0] += operation[2] / steps
        entry[1] += 1 / steps
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=METHODS, default="VOGN")
    parser.add_argument("--network", choices=NETS, default="LeNet-5")
    parser.add_argument("--rows", type=int, default=15, help="of each table")
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    options = parser.parse_args()
    batch, steps = (8, 2) if options.smoke else (BATCH, 20)
    name = options.network
    ours = operations_of(METHODS[options.method], name, batch, steps)
    plain = operations_of(adam, name, batch, steps)

    of_ours, of_plain = (
        per_step(operations, steps, lambda operation: operation[0])
        for operations in (ours, plain)
    )
    kinds = {*of_ours, *of_plain}
    kinds = sorted(kinds, key=lambda k: -abs(of_plain[k][0] - of_ours[k][0]))
    row = "{:32}{:>9}{:>9}{:>9}{:>9}".format
    print(row(name, options.method, "", "Adam", ""))
    print(row("kind of operation", "ms", "number", "ms", "number"))
    for kind in kinds[: options.rows]:
        numbers = (*of_ours[kind], *of_plain[kind])
        print(row(kind, *(f"{number:.2f}" for number in numbers)))
    sums = [
        f"{sum(ms for ms, _ in found.values()):.2f}"
        for found in (of_ours, of_plain)
    ]
    print(row("all", sums[0], "", sums[1], ""))

    print(f"\nLongest operations of {options.method}, ms of a step")
    single = per_step(ours, steps, lambda operation: operation[:2])
    longest = sorted(single.items(), key=lambda item: -item[1][0])
    for (kind, path), (ms, _) in longest[: options.rows]:
        print(f"{ms:7.2f}  {kind:24}{path}")


if __name__ == "__main__":
    main()
