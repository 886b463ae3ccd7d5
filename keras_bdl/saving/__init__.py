"""Files of nested arrays, written at once or not at all, without pickle.

Models are saved by Keras; posteriors and checkpoints are files of this kind.
"""

from keras_bdl.saving.lazy_array import LazyArray
from keras_bdl.saving.state_file import read_state
from keras_bdl.saving.state_file import write_state

__all__ = [
    "LazyArray",
    "read_state",
    "write_state",
]
