"""The processes of one training on several machines: repairs, communication."""

import contextlib
import functools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from keras_bdl import _keras
from keras_bdl._backend import in_several_workers

# Errors of collective operations if another worker has stopped or restarted.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
)


def mend_keras() -> None:
    """Makes `fit`, `evaluate` and `predict` of Keras run on several machines.

    With Keras 3.12 to 3.15, all models fail under a
    `tf.distribute.MultiWorkerMirroredStrategy` with several workers:

    - Keras averages the first batch over the replicas, to build the model.
      Batches of integers, or of unequal sizes, have no average. The repair
      builds the model with the batch of the first replica of the process.
    - Keras averages the logs of a step over an axis, but a log is a number
      without axes. The repair averages over the replicas.

    Each call after the first does nothing. The repairs last until the process
    ends, and act only under such strategies. `keras_bdl.Model` and
    `keras_bdl.distribute.strategy("multi_worker")` call this function. Call
    this function yourself if you made the strategy, before `fit` of a plain
    `keras.Model`.

    Reference:
        - Keras, issue 20585
    """
    _keras.wrap_reduction_of_logs(_with_averages_of_numbers)
    _keras.wrap_build_before_fit(_with_one_local_batch)


def build_with_a_local_batch(model: keras.Model, iterator: Any) -> None:
    """Builds a model as `fit` does, with a batch of the first local replica."""
    strategy = model.distribute_strategy
    for _, _, batches in iterator:
        batch = tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0],
            next(batches),
        )
        with strategy.scope():
            _keras.symbolic_build(model, batch)
        return


def _with_averages_of_numbers(reduce_per_replica: Callable) -> Callable:
    def mended(values: Any, strategy: Any, reduction: str) -> Any:
        if not in_several_workers(strategy) or reduction not in (
            "auto",
            "mean",
        ):
            return reduce_per_replica(values, strategy, reduction)
        return tree.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return mended


def _with_one_local_batch(maybe_symbolic_build: Callable) -> Callable:
    def mended(
        self: keras.Model, iterator: Any = None, data_batch: Any = None
    ) -> None:
        if iterator is None or not in_several_workers(self.distribute_strategy):
            maybe_symbolic_build(self, iterator, data_batch)
        else:
            build_with_a_local_batch(self, iterator)

    return mended


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


def first_replica(strategy: tf.distribute.Strategy) -> int:
    """Returns the index of the first replica of this process."""
    if not in_several_workers(strategy):
        return 0
    return _keras.first_replica_id(strategy)


def replica_arrays(
    strategy: tf.distribute.Strategy, arrays: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """Returns the arrays of each replica of all processes, in their order.

    `arrays` are those of each replica of this process, with the same shapes and
    dtypes on all replicas. All workers must call this function, outside of a
    training step.
    """
    if not in_several_workers(strategy):
        return [list(of_replica) for of_replica in arrays]
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


def weights_of_first_replica(model: keras.Model) -> list[np.ndarray]:
    """Returns `model.get_weights()` of the first replica.

    Each replica has its own BatchNorm statistics. `get_weights` returns the
    statistics of a replica of this process, so they differ between workers. All
    workers must call this function.
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


def numbers_of_workers(
    strategy: tf.distribute.Strategy, numbers: list[int]
) -> list[list[int]]:
    """Returns the integers of each worker. All must pass equally many."""
    if not in_several_workers(strategy):
        return [numbers]
    local = len(strategy.extended.worker_devices)
    array = np.asarray(numbers, np.int64)
    found = replica_arrays(strategy, [[array]] * local)
    return [replica[0].tolist() for replica in found[::local]]


@functools.cache  # without the cache, every call would trace a new function
def _gather(strategy: tf.distribute.Strategy) -> Callable:
    return tf.function(
        lambda values: strategy.gather(values, axis=0), reduce_retracing=True
    )


def _packed(arrays: Sequence[Any]) -> np.ndarray:
    data = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    data += bytes(-len(data) % 4)
    return np.frombuffer(data, np.int32)


def _unpacked(row: np.ndarray, like: Sequence[Any]) -> list[np.ndarray]:
    data, arrays, start = row.tobytes(), [], 0
    for array in map(np.asarray, like):
        part = data[start : start + array.nbytes]
        arrays.append(np.frombuffer(part, array.dtype).reshape(array.shape))
        start += array.nbytes
    return arrays


@contextlib.contextmanager
def lost_worker_explained(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Returns a context that explains the error if a worker is lost."""
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
