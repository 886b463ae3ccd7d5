"""The data of one training."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """The data of one training.

    Attributes:
        train: Batches for training.
        statistics: The same images in a fixed order, without augmentation.
        validation: Images and labels kept for validation, or `None`.
        sets: Images and labels by name, `"test"` among them. The
            out-of-distribution sets have no labels.
        train_size: Number of training images.
        steps: Steps of an epoch.
        input_shape: Shape of an image.
        classes: Number of classes.
        epochs: The callback that counts the passes over `train`.
    """

    train: Any
    statistics: Any
    validation: Any
    sets: dict
    train_size: int
    steps: int
    input_shape: tuple
    classes: int
    epochs: Any
