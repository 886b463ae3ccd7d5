"""The count N of training examples, and protocols of training steps.

For authors of methods; the model that runs the step is in `keras_bdl.models`.
"""

from keras_bdl.training.dataset_size import DatasetSize
from keras_bdl.training.protocols import DrawsFunctions
from keras_bdl.training.protocols import OwnsTrainStep
from keras_bdl.training.protocols import OwnsVariables

__all__ = ["DatasetSize", "DrawsFunctions", "OwnsTrainStep", "OwnsVariables"]
