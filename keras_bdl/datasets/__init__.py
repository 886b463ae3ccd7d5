"""Data sets of the papers, loaded and split.

`load` returns known and unknown classes, and pipelines that augment.
The networks for them are in `keras_bdl.applications`.
"""

from keras_bdl.datasets.data_splits import DataSplits
from keras_bdl.datasets.epoch_counter import EpochCounter
from keras_bdl.datasets.loading import load
from keras_bdl.datasets.specs import SPECS
from keras_bdl.datasets.specs import DatasetSpec

__all__ = [
    "SPECS",
    "DataSplits",
    "DatasetSpec",
    "EpochCounter",
    "load",
]
