"""The command of two workers, which a test kills and starts again.

TF_CONFIG=... python -m tests.distribute.killed_run <index> <folder>
"""

import os
import sys
import time

import keras

import keras_bdl as bdl
from keras_bdl._saving._state_file import write_state
from tests.distribute.cases import long_run


class Slow(keras.callbacks.Callback):
    """Slows training down, so that it can be killed."""

    def on_epoch_begin(self, epoch, logs=None):
        print("training", flush=True)

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)


def main(index, folder):
    strategy = bdl.distribute.strategy("auto")
    result = long_run(strategy, folder, Slow())
    write_state(os.path.join(folder, f"{index}.bdl"), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
