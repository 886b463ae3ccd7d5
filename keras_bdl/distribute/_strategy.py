"""Distribution strategies by name."""

import json
import os
from typing import Any

import tensorflow as tf

from keras_bdl.distribute._workers import mend_keras

_EXAMPLE = (
    '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


def strategy(name: str = "auto") -> tf.distribute.Strategy:
    """Returns a `tf.distribute.Strategy` by name.

    Make the model, the optimizer and the metrics under
    `with strategy.scope():`. The batch size counts the examples of all devices
    together.

    Args:
        name: One of

            - `"default"`: one device, which TensorFlow chooses.
            - `"mirrored"`: all GPUs of this machine, or all its logical CPUs
              if it has no GPU.
            - `"multi_worker"`: the machines in the environment variable
              `TF_CONFIG`. All machines run the same program with the same
              `keras.utils.set_random_seed`. With this name, the function also
              calls `keras_bdl.distribute.mend_keras`.
            - `"tpu"`, `"tpu:<name>"`: the TPU of this machine, or the TPU with
              that name.
            - `"auto"`: `"multi_worker"` if `TF_CONFIG` names more than one
              machine, otherwise `"tpu"` if `TPU_NAME` is set, `"mirrored"`
              if the machine has several GPUs, or `"default"`.

            Defaults to `"auto"`.

    Example:

    ```python
    with keras_bdl.distribute.strategy("mirrored").scope():
        model = keras_bdl.Sequential([keras.layers.Dense(2)])
        model.compile(keras_bdl.ATMC(), loss=loss)
    model.fit(x, y, batch_size=32)
    ```
    """
    if name == "auto":
        name = _found()
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return _mirrored()
    if name == "multi_worker":
        return _multi_worker()
    if isinstance(name, str) and name.startswith("tpu:") and name != "tpu:":
        return _tpu(name.removeprefix("tpu:"))
    if name == "tpu":
        return _tpu(os.environ.get("TPU_NAME") or "local")
    raise ValueError(
        '`name` must be "auto", "default", "mirrored", "multi_worker", "tpu" '
        f'or "tpu:<name>". Received: name={name!r}'
    )


def _found() -> str:
    if _number_of_workers() > 1:
        return "multi_worker"
    if os.environ.get("TPU_NAME"):
        return "tpu"
    # Listing the logical devices would start TensorFlow.
    several = len(tf.config.list_physical_devices("GPU")) > 1
    return "mirrored" if several else "default"


def _number_of_workers() -> int:
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        cluster = config.get("cluster", {})
        machines = [
            m for job in ("chief", "worker") for m in cluster.get(job, [])
        ]
        if machines:
            # Raises if this machine or the port of a machine is missing.
            place = config["task"]
            dict(enumerate(cluster[place["type"]]))[int(place["index"])]
            [int(machine.rsplit(":", 1)[1]) for machine in machines]
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(
            "`TF_CONFIG` must be a JSON object with a list of machines, their "
            "ports, and the place of this machine in the list. Write, for "
            f"example, {_EXAMPLE}. Received: TF_CONFIG={text}"
        ) from None
    return len(machines)


def _mirrored() -> tf.distribute.Strategy:
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    cpus = [device.name for device in tf.config.list_logical_devices("CPU")]
    return tf.distribute.MirroredStrategy(cpus)


def _multi_worker() -> tf.distribute.Strategy:
    if _number_of_workers() == 0:
        raise ValueError(
            '`strategy("multi_worker")` needs the environment variable '
            "`TF_CONFIG` on every machine, with another `index` on each: "
            f"TF_CONFIG='{_EXAMPLE}'. "
            f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        )
    mend_keras()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    own, others = _machines(resolver)
    if others:
        # TensorFlow would wait without a limit and without a message.
        print(f"{own} waits until all of {others} have started.", flush=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise RuntimeError(
            '`strategy("multi_worker")` must come before any computation of '
            "TensorFlow. Make the strategy at the start of the program, and "
            "data and models after it."
        ) from error
    except tf.errors.UnknownError as error:
        if "Could not start gRPC server" not in str(error):
            raise
        raise RuntimeError(
            "`TF_CONFIG` must name a free port of this machine, and another "
            "`index` in each process. Received: a port that is in use, in "
            f"{own}"
        ) from error


def _machines(resolver: Any) -> tuple[str, list[str]]:
    """Returns the addresses of this machine and of the others."""
    cluster = resolver.cluster_spec().as_dict()
    own = cluster[resolver.task_type][resolver.task_id]
    return own, [a for job in cluster.values() for a in job if a != own]


def _tpu(name: str) -> tf.distribute.Strategy:
    # TensorFlow calls the TPU of this machine "local".
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.NotFoundError, OSError) as error:
        cause = " ".join(str(error).split())
        raise RuntimeError(
            '`strategy("tpu")` needs a machine with a TPU and a TensorFlow '
            'with TPU support. `strategy("tpu:<name>")` and the environment '
            "variable `TPU_NAME` need a TPU that Google Cloud can find. "
            f"Received: the TPU {name!r}, and from TensorFlow: {cause[:200]}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)
