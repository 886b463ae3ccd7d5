"""The command of two workers that a test kills and starts again.

python -m tests.distribute.killed_run <index> <ports> <folder>
"""

import os
import sys
import time

import keras

import keras_bdl as bdl
from keras_bdl.saving import write_state
from tests.distribute.cases import long_run
from tests.distribute.worker import set_cluster


class Slow(keras.callbacks.Callback):
    """Spreads training over some time, in which it can be killed."""

    def on_epoch_begin(self, epoch, logs=None):
        print("training", flush=True)

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)


def main(index, ports, folder):
    set_cluster(index, ports)
    strategy = bdl.distribute.strategy("auto")
    result = long_run(strategy, folder, Slow())
    write_state(os.path.join(folder, f"{index}.bdl"), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
