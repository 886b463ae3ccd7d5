"""Training on several devices or machines.

`strategy` returns a strategy of TensorFlow by name. `mend_keras` repairs errors
of Keras on several machines. Under a strategy, all other code stays the same.
"""

from keras_bdl.distribute._strategy import strategy
from keras_bdl.distribute._workers import is_chief
from keras_bdl.distribute._workers import mend_keras
from keras_bdl.distribute._workers import wait_for_all

__all__ = ["is_chief", "mend_keras", "strategy", "wait_for_all"]
