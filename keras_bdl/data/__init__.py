"""Batches of any kind of user data, checks of the data, and its size N.

`keras_bdl.datasets` downloads data sets by name; this folder reads data.
"""

from keras_bdl.data.dataset_size import DatasetSize

__all__ = ["DatasetSize"]
