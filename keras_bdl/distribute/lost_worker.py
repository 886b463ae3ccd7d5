"""What to say when a worker is gone."""

import contextlib

import tensorflow as tf

from keras_bdl.distribute.keras_fixes import in_several_workers

# How the collective operations of TensorFlow end when a peer is gone, or back
# again as another process.
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
    """Raises an error that says what to do when another worker is gone.

    Args:
        strategy: The strategy of the model that is used in the block.
    """
    try:
        yield
    except _LOST as error:
        if not in_several_workers(strategy):
            raise
        raise RuntimeError(
            "Another worker has stopped, or cannot be reached, and this one "
            "cannot go on alone. Start all workers again with the same "
            "commands; with `keras_bdl.callbacks.Checkpoint`, `fit` goes on "
            "where it was. Received, as worker "
            f"{strategy.cluster_resolver.task_id} of "
            f"{_number_of_workers(strategy)}: {_reason(error)}"
        ) from error


def _number_of_workers(strategy):
    local = len(strategy.extended.worker_devices)
    return strategy.num_replicas_in_sync // local


def _reason(error):
    """The lines of TensorFlow that tell who is gone, without the trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [i for i, line in enumerate(lines) if "/job:" in line]
    if not told:
        return f"{type(error).__name__}: {lines[-1]}"
    return " ".join(lines[told[0] : told[-1] + 1])
