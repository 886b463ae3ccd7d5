"""Counts the examples of an epoch in whatever `fit` is given."""

import dataclasses
import math

import keras
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class ExampleCount:
    """How many examples an epoch has, and how sure that is.

    Attributes:
        examples: The count.
        tolerance: By how much the truth may differ: the last batch of a
            `tf.data` set may be short.
        endless: Whether the data has no end and `steps_per_epoch` gave one.
    """

    examples: int
    tolerance: int = 0
    endless: bool = False


def count_examples(
    x, validation_split=0.0, steps_per_epoch=None, has_validation_data=False
):
    """Counts the training examples of one epoch.

    Args:
        x: The argument of `fit`.
        validation_split: That of `fit`.
        steps_per_epoch: That of `fit`.
        has_validation_data: Whether `fit` was given `validation_data`, which
            makes Keras ignore `validation_split`.

    Returns:
        An `ExampleCount`, or `None` where the data does not tell.
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
        # The number of rows that Keras keeps for training.
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
    return ExampleCount(0)  # no batch came


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
