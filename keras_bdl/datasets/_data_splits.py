"""The parts of one data set, ready for a model."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras_bdl.datasets._epoch_counter import EpochCounter


@dataclasses.dataclass(frozen=True, eq=False)
class DataSplits:
    """The parts of one data set, all preprocessed in the same way.

    `keras_bdl.datasets.load` returns this object. A part is either a pair of
    NumPy arrays `(x, y)` or a batched `tf.data.Dataset` of such pairs: `x` is
    float32 `(n, size, size, channels)`, `y` is int32 `(n,)`.

    Attributes:
        name: Name of the data set.
        train: Training data, or `None` for a set with only test images. A
            `tf.data.Dataset` is shuffled and augmented differently in every
            pass, see `epochs`.
        train_eval: The training examples in a fixed order, without
            augmentation. Use `train_eval` for statistics over the training
            data, such as those of BatchNorm.
        validation: Examples taken out of `train`, or `None`.
        test: Test data.
        ood: Dict from a name to out-of-distribution inputs without labels.
        class_names: Name of the class for each value of `y`.
        input_shape: Shape of one input, for `keras.Input`.
        train_size: N, the exact number of training examples, even if the last
            batch of `train` is smaller. Pass N as `dataset_size`.
        epochs: An `EpochCounter`, or `None` for arrays and without `train`.
            Pass it to `fit` as a callback to make the data of an epoch a
            function of (seed, epoch).
        train_on_host: Function for `strategy.distribute_datasets_from_function`
            that returns the batches of `train` for the replicas of one host of
            a TPU pod, or `None` for arrays and without `train`. All hosts
            together see the batches of `train`, without a last, smaller batch.
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
    train_on_host: Callable | None = dataclasses.field(default=None, repr=False)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)
