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
        cause = " ".join(str(error).split())
        if not in_several_workers(strategy) or "ollective" not in cause:
            raise
        cause = cause.partition("aborted by: ")[2] or cause
        raise RuntimeError(
            "Another worker has stopped, or cannot be reached, and this one "
            "cannot go on alone. Start all workers again with the same "
            "commands; with `keras_bdl.callbacks.Checkpoint`, `fit` goes on "
            "where it was. Received, as worker "
            f"{strategy.cluster_resolver.task_id}: {cause[:300]}"
        ) from error
