"""One data set, divided and ready for a model."""

import dataclasses
from typing import Any

from keras_bdl.datasets.epoch_counter import EpochCounter


@dataclasses.dataclass(frozen=True, eq=False)
class DataSplits:
    """The parts of one data set, preprocessed alike.

    Made by `keras_bdl.datasets.load`. A part is either a pair of NumPy arrays
    `(x, y)` or a batched `tf.data.Dataset` of such pairs: `x` is float32
    `(n, size, size, channels)`, `y` is int32 `(n,)`.

    Attributes:
        name: The name it was loaded by.
        train: Training data. As a `tf.data.Dataset` it is shuffled and
            augmented, anew in every pass; see `epochs`.
        train_eval: The same examples as a model sees them in evaluation: not
            augmented, always in one order. For statistics over the training
            data, such as those of BatchNorm.
        validation: Examples kept from `train`, or `None`.
        test: Test data.
        ood: Name -> inputs that are out of distribution, without labels.
        class_names: What each value of `y` stands for.
        input_shape: Shape of one input, for `keras.Input`.
        train_size: Number of training examples, N; the exact `dataset_size`
            where the last batch of `train` is a smaller one.
        epochs: An `EpochCounter`, or `None` for arrays: the callback that
            makes the data of an epoch a function of (seed, epoch).
    """

    name: str
    train: Any = dataclasses.field(repr=False)
    train_eval: Any = dataclasses.field(repr=False)
    validation: Any = dataclasses.field(repr=False)
    test: Any = dataclasses.field(repr=False)
    ood: dict[str, Any] = dataclasses.field(repr=False)
    class_names: tuple[str, ...] = dataclasses.field(repr=False)
    input_shape: tuple[int, int, int]
    train_size: int
    epochs: EpochCounter | None = dataclasses.field(default=None, repr=False)

    @property
    def num_classes(self):
        """Number of classes."""
        return len(self.class_names)
