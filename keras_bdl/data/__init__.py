"""Batches of whatever a user passes as data, checks of it, and N.

Data sets to load by name are in `keras_bdl.datasets`.
"""

from keras_bdl.data.dataset_size import DatasetSize

__all__ = ["DatasetSize"]
