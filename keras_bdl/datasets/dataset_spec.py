"""Facts about one image-classification data set."""

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_bdl.datasets.augmentation import resize_with_crop_or_pad


@dataclasses.dataclass(frozen=True)
class DatasetSpec:
    """What to do with the images of one data set.

    A model is given

        x = (image / max_value - mean) / stddev                           (1)

    of the image after `augment` in training and after `prepare` otherwise.
    Vary one of `keras_bdl.datasets.SPECS` with `dataclasses.replace`, or write
    one for any other image-classification set of TensorFlow Datasets.

    Args:
        name: Name in TensorFlow Datasets, with the configuration after a
            slash where it has several.
        image_size: Side of the square that the model sees.
        mean: Of (1), one number a channel.
        stddev: Of (1), one number a channel.
        stored_size: Side of the stored images. Defaults to `None`: they
            differ, and `augment` and `prepare` take any size.
        augment: `(image, key, image_size) -> image`, a function of nothing
            else. Defaults to `None`, `prepare` in training as well.
        prepare: `(image, image_size) -> image`. Defaults to a central crop.
        max_value: Of (1), the largest value of a pixel. Defaults to `255.0`.
        train_split: Defaults to `"train"`.
        validation_split: Defaults to `None`: the set has none.
        test_split: Defaults to `"test"`.
        label_map: The class that each stored label stands for, and -1 for one
            that stands for none. Defaults to `None`, labels are classes.
        class_names: Defaults to `None`, what TensorFlow Datasets says.
        classes: The classes that `load` selects when it is told nothing.
            Defaults to `None`, all.
        batch_size: Defaults to `128`.
        shuffle_buffer: How many undecoded examples are held in memory for
            shuffling; a set that is not larger is read only once. Defaults to
            `100_000`.

    Example:

    ```python
    flowers = keras_bdl.datasets.DatasetSpec(
        name="oxford_flowers102",
        image_size=128,
        mean=(0.485, 0.456, 0.406),
        stddev=(0.229, 0.224, 0.225),
        prepare=keras_bdl.datasets.augmentation.resized_central_crop,
    )
    data = keras_bdl.datasets.load(flowers)
    ```
    """

    name: str
    image_size: int
    mean: tuple[float, ...]
    stddev: tuple[float, ...]
    stored_size: int | None = None
    augment: Callable | None = None
    prepare: Callable = resize_with_crop_or_pad
    max_value: float = 255.0
    train_split: str = "train"
    validation_split: str | None = None
    test_split: str = "test"
    label_map: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None
    classes: tuple[int, ...] | None = None
    batch_size: int = 128
    shuffle_buffer: int = 100_000

    def __post_init__(self):
        if len(self.mean) != len(self.stddev) or len(self.mean) not in (1, 3):
            raise ValueError(
                "`mean` and `stddev` must both have one number a channel, for "
                f"one or three channels. Received: mean={self.mean}, "
                f"stddev={self.stddev}"
            )
        if not all(s > 0 for s in self.stddev):
            raise ValueError(
                "`stddev` must be positive in every channel. Received: "
                f"stddev={self.stddev}"
            )

    @property
    def channels(self):
        """Number of channels of an image."""
        return len(self.mean)

    def normalize(self, image):
        """Applies (1) to float32 pixels, of NumPy or of TensorFlow."""
        mean = np.array(self.mean, "float32")
        stddev = np.array(self.stddev, "float32")
        return (image / np.float32(self.max_value) - mean) / stddev  # (1)
