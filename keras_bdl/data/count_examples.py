"""The number of examples in an epoch of `fit`."""

import dataclasses
import math

import keras
import tensorflow as tf

from keras_bdl.aliases import Data


@dataclasses.dataclass(frozen=True)
class ExampleCount:
    """The number of examples in an epoch, and the largest error of this number.

    Attributes:
        examples: Number of examples.
        tolerance: Largest possible error of `examples`. It is not zero if the
            last batch may be smaller than the others.
        endless: Whether the data have no end, so that `steps_per_epoch`
            defines the epoch.
    """

    examples: int
    tolerance: int = 0
    endless: bool = False

    def times(self, factor: int) -> "ExampleCount":
        """Returns the count of something that each example has several of.

        Args:
            factor: The number of these in each example.
        """
        return ExampleCount(
            factor * self.examples, factor * self.tolerance, self.endless
        )


def count_examples(
    x: Data,
    *,
    validation_split: float | None = 0.0,
    steps_per_epoch: int | None = None,
    has_validation_data: bool = False,
) -> ExampleCount | None:
    """Counts the training examples of one epoch.

    Args:
        x: Argument of `fit`.
        validation_split: Argument of `fit`. Defaults to `0.0`.
        steps_per_epoch: Argument of `fit`. Defaults to `None`.
        has_validation_data: Whether `fit` was given `validation_data`. Keras
            then ignores `validation_split`. Defaults to `False`.

    Returns:
        An `ExampleCount`, or `None` if the size is unknown before reading.
    """
    if isinstance(x, tf.data.Dataset):
        return _count_dataset(x, steps_per_epoch)
    if isinstance(x, keras.utils.PyDataset):
        return _count_py_dataset(x, steps_per_epoch)
    sizes = {len(a) for a in keras.tree.flatten(x) if _is_array(a)}
    if len(sizes) != 1:
        return None
    examples = sizes.pop()
    if validation_split and not has_validation_data:
        # Keras uses this number of rows for training.
        examples = math.floor(examples * (1.0 - validation_split))
    return ExampleCount(examples)


def _is_array(x):
    return hasattr(x, "shape") and hasattr(x, "dtype") and len(x.shape) > 0


def _count_dataset(dataset, steps_per_epoch):
    batches = int(dataset.cardinality())
    endless = batches == tf.data.INFINITE_CARDINALITY
    if batches < 0:
        if steps_per_epoch is None:
            return None
        batches = steps_per_epoch
    batch_size = _static_batch_size(dataset.element_spec)
    if batch_size is not None:
        return ExampleCount(batches * batch_size, 0, endless)
    for batch in dataset.take(1):
        batch_size = int(tf.shape(keras.tree.flatten(batch)[0])[0])
        return ExampleCount(batches * batch_size, batch_size - 1, endless)
    return ExampleCount(0)  # the data set is empty


def _static_batch_size(element_spec):
    shape = getattr(keras.tree.flatten(element_spec)[0], "shape", None)
    return shape[0] if shape else None


def _count_py_dataset(dataset, steps_per_epoch):
    batches = dataset.num_batches
    if batches is None:
        if steps_per_epoch is None:
            return None
        batches = steps_per_epoch
    first = next(a for a in keras.tree.flatten(dataset[0]) if _is_array(a))
    batch_size = len(first)
    return ExampleCount(
        batches * batch_size, batch_size - 1, dataset.num_batches is None
    )
