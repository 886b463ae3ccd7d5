"""Files of nested arrays, written atomically and without pickle.

Posteriors and checkpoints are saved in such files. Keras saves the models.
"""

from keras_bdl.saving.lazy_array import LazyArray
from keras_bdl.saving.state_file import read_state
from keras_bdl.saving.state_file import write_state
from keras_bdl.saving.storage_path import StoragePath

__all__ = [
    "LazyArray",
    "StoragePath",
    "read_state",
    "write_state",
]
