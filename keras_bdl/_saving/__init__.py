"""Files that survive a crash, on the local disk or in a bucket.

Posteriors and checkpoints are files of nested arrays, written in one piece and
without pickle. Keras saves the models.
"""

from keras_bdl._saving._storage_path import StoragePath

__all__ = ["StoragePath"]
