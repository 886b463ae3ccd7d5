"""The command that `test_killed_process.py` starts and kills several times.

    python killed_run.py <directory of the checkpoint> <file for the result>

With `KILL_IN_WRITE=k` in the environment, the process sends itself SIGKILL
while it writes its k-th checkpoint, before the file is replaced.
"""

import os
import signal
import sys
import time

import keras
import numpy as np

import keras_bdl as bdl
from keras_bdl._saving._state_file import write_state

EPOCHS, STEPS = 12, 8


class Slow(keras.callbacks.Callback):
    """Slows training down, so that it can be killed."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.04)


def kill_in_write(count):
    fsync, calls = os.fsync, []

    def fsync_or_die(file):
        calls.append(file)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(file)

    os.fsync = fsync_or_die


def main(directory, result):
    if "KILL_IN_WRITE" in os.environ:
        # Two calls a checkpoint: the file, then its directory.
        kill_in_write(2 * int(os.environ["KILL_IN_WRITE"]) - 1)
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(16 * STEPS, 4)).astype("float32")
    y = (x[:, 0] * x[:, 1] > 0).astype("int32")
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(2),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    swag = bdl.SWAG(start_epoch=2, rank=4)
    checkpoint = bdl.callbacks.Checkpoint(directory, every=5, unit="step")
    print("training", flush=True)
    model.fit(
        x,
        y,
        batch_size=16,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[Slow(), swag, checkpoint],
    )
    write_state(
        result,
        {
            "model": [v.numpy() for v in model.variables],
            "optimizer": [v.numpy() for v in model.optimizer.variables],
            "history": model.history.history,
            "posterior": swag.posterior.get_state(),
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
