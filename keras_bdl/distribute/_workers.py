"""Communication between the processes of one training."""

import contextlib
import functools

import numpy as np
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.distribute._keras_fixes import in_several_workers


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process is the one that writes files.

    Use this function before you save a result. On several machines, all
    processes hold the same weights and posteriors, and only one of them should
    save. The callbacks of `keras_bdl` call this function themselves.

    Args:
        strategy: The `tf.distribute.Strategy` of the model.

    Example:

    ```python
    if keras_bdl.distribute.is_chief(model.distribute_strategy):
        posterior.save("posterior.bdl")
    ```
    """
    return not in_several_workers(strategy) or bool(
        strategy.extended.should_checkpoint
    )


def first_replica(strategy) -> int:
    """Returns the index of the first replica of this process."""
    if not in_several_workers(strategy):
        return 0
    return _keras.first_replica_id(strategy)


def replica_arrays(strategy, arrays):
    """Returns the arrays of the replicas of all processes.

    All workers must call this function, outside of a training step.

    Args:
        strategy: The strategy.
        arrays: A list of arrays for each replica of this process. Shapes and
            dtypes are the same on all replicas.

    Returns:
        A list of arrays for each replica of all processes, in their order.
    """
    if not in_several_workers(strategy):
        return list(arrays)
    # Sent as integers, because transport may change the bytes of other dtypes.
    packed = [_packed(of_replica) for of_replica in arrays]
    if not packed[0].size:
        # Gathering an empty tensor kills the process.
        return [list(arrays[0])] * strategy.num_replicas_in_sync
    first = first_replica(strategy)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            packed[int(context.replica_id_in_sync_group) - first]
        )[tf.newaxis]
    )
    with lost_worker_explained(strategy):
        gathered = _gather(strategy)(values).numpy()
    return [_unpacked(row, arrays[0]) for row in gathered]


def weights_of_first_replica(model):
    """Returns `model.get_weights()` of the first replica.

    Each replica has its own BatchNorm statistics. `get_weights` returns the
    statistics of a replica of this process, so they differ between workers. All
    workers must call this function.

    Args:
        model: A built Keras model.
    """
    weights = model.get_weights()
    strategy = model.distribute_strategy
    if not in_several_workers(strategy):
        return weights
    own = [i for i, v in enumerate(model.weights) if not v.trainable]
    local = len(strategy.extended.worker_devices)
    first = replica_arrays(strategy, [[weights[i] for i in own]] * local)[0]
    for i, array in zip(own, first, strict=True):
        weights[i] = array
    return weights


def wait_for_all(strategy: tf.distribute.Strategy) -> None:
    """Waits until all workers have called this function.

    Args:
        strategy: The strategy of the model.

    Example:

    ```python
    keras_bdl.distribute.wait_for_all(tf.distribute.get_strategy())
    ```
    """
    numbers_of_workers(strategy, [0])


def numbers_of_workers(strategy, numbers):
    """Returns the integers of each worker, a list of lists.

    Args:
        strategy: The strategy of the model.
        numbers: The integers of this worker. All workers must pass equally
            many.
    """
    if not in_several_workers(strategy):
        return [numbers]
    local = len(strategy.extended.worker_devices)
    array = np.asarray(numbers, np.int64)
    found = replica_arrays(strategy, [[array]] * local)
    return [replica[0].tolist() for replica in found[::local]]


@functools.cache  # without the cache, every call would trace a new function
def _gather(strategy):
    return tf.function(
        lambda values: strategy.gather(values, axis=0), reduce_retracing=True
    )


def _packed(arrays):
    data = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    data += bytes(-len(data) % 4)
    return np.frombuffer(data, np.int32)


def _unpacked(row, like):
    data, arrays, start = row.tobytes(), [], 0
    for array in map(np.asarray, like):
        part = data[start : start + array.nbytes]
        arrays.append(np.frombuffer(part, array.dtype).reshape(array.shape))
        start += array.nbytes
    return arrays


# Errors of collective operations if another worker has stopped or restarted.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
)


@contextlib.contextmanager
def lost_worker_explained(strategy):
    """Returns a context that explains the error if a worker is lost.

    Args:
        strategy: The strategy of the model that the block uses.
    """
    try:
        yield
    except _LOST as error:
        cause = " ".join(str(error).split())
        if not in_several_workers(strategy) or "ollective" not in cause:
            raise
        cause = cause.partition("aborted by: ")[2] or cause
        raise RuntimeError(
            "Another worker has stopped or cannot be reached, and this worker "
            "cannot continue alone. Start all workers again with the same "
            "commands. With `keras_bdl.callbacks.Checkpoint`, `fit` resumes "
            "where it stopped. Received, as worker "
            f"{strategy.cluster_resolver.task_id}: {cause[:300]}"
        ) from error
