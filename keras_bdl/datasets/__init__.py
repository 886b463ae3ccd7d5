"""Data sets of the papers, loaded, split and augmented.

`load` returns the parts of a data set, with out-of-distribution inputs. The
networks for them are in `keras_bdl.applications`. Batches of arbitrary inputs
are the subject of `keras_bdl.data`.
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
