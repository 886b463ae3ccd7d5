"""Batches and checks of user data, and N, the number of training examples.

`keras_bdl.datasets` downloads data sets by name; this folder reads user data.
"""

from keras_bdl._data._dataset_size import DatasetSize

__all__ = ["DatasetSize"]
