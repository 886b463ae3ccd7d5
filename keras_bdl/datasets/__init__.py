"""Data sets of published papers, loaded, split and augmented.

`load` returns the parts of a data set, with out-of-distribution inputs.
`keras_bdl.applications` has networks for these data sets. `keras_bdl.data`
reads data of the user.
"""

from keras_bdl.datasets.augmentation import pad_crop
from keras_bdl.datasets.augmentation import square_crop_flip
from keras_bdl.datasets.corruption import corrupt
from keras_bdl.datasets.data_splits import DataSplits
from keras_bdl.datasets.epoch_counter import EpochCounter
from keras_bdl.datasets.image_pipeline import ImagePipeline
from keras_bdl.datasets.loading import load
from keras_bdl.datasets.padding import padded
from keras_bdl.datasets.specs import SHARED_CLASSES
from keras_bdl.datasets.specs import SPECS
from keras_bdl.datasets.specs import DatasetSpec

__all__ = [
    "SHARED_CLASSES",
    "SPECS",
    "DataSplits",
    "DatasetSpec",
    "EpochCounter",
    "ImagePipeline",
    "corrupt",
    "load",
    "pad_crop",
    "padded",
    "square_crop_flip",
]
