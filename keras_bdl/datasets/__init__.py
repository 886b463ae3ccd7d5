"""Data sets of published papers, loaded, split and augmented.

`load` returns the parts of a data set, with out-of-distribution inputs.
`keras_bdl.applications` has networks for these data sets. `keras_bdl.predict`
reads data of the user.
"""

from keras_bdl.datasets._corruption import corrupt
from keras_bdl.datasets._dataset_specs import SPECS
from keras_bdl.datasets._epoch_counter import EpochCounter
from keras_bdl.datasets._image_pipeline import padded
from keras_bdl.datasets._loading import load

__all__ = ["SPECS", "EpochCounter", "corrupt", "load", "padded"]
