"""The number of training examples in the data of `fit`."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_bdl._aliases import Data
from keras_bdl._data._pipeline_pass import Pass
from keras_bdl._data._pipeline_pass import pass_over
from keras_bdl._data._pipeline_pass import repeats


def _unknown(_):
    return None


@dataclasses.dataclass(frozen=True)
class ExampleCount:
    """The number of training examples, exact or estimated.

    Attributes:
        examples: Number of different examples.
        exact: Whether the number is exact. If not, `fit` counts the examples
            of its first pass over the data.
        batches: Number of steps of a pass, or `None` if only the end of the
            data can tell.
        expected: Function that returns how many examples the estimate expects
            in the first steps, or `None` if it expects no number.
        endless: Whether the data have no end, so that `steps_per_epoch`
            defines the epoch.
        repeated: Whether the data repeat examples in a way that hides the
            number of different ones.
    """

    examples: int
    exact: bool = True
    batches: int | None = None
    expected: Callable[[int], Any] = _unknown
    endless: bool = False
    repeated: bool = False

    def is_settled_by(self, steps: int) -> bool:
        """Returns whether an epoch of so many steps is a whole pass.

        Args:
            steps: The number of steps since the pass began.
        """
        return self.batches is None or steps >= self.batches

    def corrected(self, seen: int, steps: int) -> int:
        """Returns the number of examples, after a pass.

        Args:
            seen: Number of examples in the pass, each repetition counted.
            steps: Number of steps of the pass.
        """
        expected = self.expected(steps)
        if expected is None:
            return seen
        return round(self.examples * seen / expected)


def count_examples(
    x: Data,
    *,
    validation_split: float | None = 0.0,
    steps_per_epoch: int | None = None,
    has_validation_data: bool = False,
    first: Any = None,
) -> ExampleCount | None:
    """Counts the training examples.

    Args:
        x: Argument of `fit`.
        validation_split: Argument of `fit`. Defaults to `0.0`.
        steps_per_epoch: Argument of `fit`. Defaults to `None`.
        has_validation_data: Whether `fit` was given `validation_data`. Keras
            then ignores `validation_split`. Defaults to `False`.
        first: The first batch of a Python generator, which `peeked` returns.
            Defaults to `None`.

    Returns:
        An `ExampleCount`, or `None` if the size is unknown before reading.
    """
    if isinstance(x, tf.data.Dataset):
        return _count_dataset(x, steps_per_epoch)
    if isinstance(x, keras.utils.PyDataset):
        return _count_py_dataset(x, steps_per_epoch)
    if first is not None:
        return _of_batches(first, None, steps_per_epoch)
    sizes = {_rows(a) for a in keras.tree.flatten(x) if _is_array(a)}
    if not sizes and hasattr(x, "__len__") and hasattr(x, "__iter__"):
        return _count_loader(x, steps_per_epoch)
    if len(sizes) != 1:
        return None
    examples = sizes.pop()
    if validation_split and not has_validation_data:
        # Keras uses this number of rows for training.
        examples = math.floor(examples * (1.0 - validation_split))
    return ExampleCount(examples)


def peeked(generator: Iterator) -> tuple[Any, Iterator]:
    """Returns the first batch of a generator, and a generator of all batches.

    Args:
        generator: A Python generator, which can be read once.
    """
    first = next(generator, None)

    def batches():
        if first is not None:
            yield first
        yield from generator

    return first, batches()


def different_examples(data: Data, seen: int) -> int:
    """Returns how many of the examples of a pass are different ones.

    Warns if the data repeat examples in a way that hides this number.

    Args:
        data: The data that were read.
        seen: Number of examples in the pass, each repetition counted.
    """
    if not isinstance(data, tf.data.Dataset):
        return seen
    found = pass_over(data)
    if found is not None and found.total not in (0, math.inf):
        return round(found.distinct * seen / found.total)
    if repeats(data):
        warnings.warn(
            "`data` repeat examples, and N should be the number of different "
            "examples, which this pipeline hides. Leave out `.repeat()`, or "
            f"give `dataset_size`. Received: data of {seen} examples",
            stacklevel=3,
        )
    return seen


def count_by_reading(data: Data, verbose: Any) -> ExampleCount | None:
    """Reads data whose length only a pass over them can tell.

    Args:
        data: The data of a training that reads them to their end.
        verbose: Whether to print the number.

    Returns:
        An `ExampleCount`, or `None` if the data cannot be read again.
    """
    if not isinstance(data, tf.data.Dataset):
        return None
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        return None
    warnings.warn(
        "The training data do not tell their length, so `fit` reads them once "
        "before the training to count N. To save this pass, write "
        f"`dataset_size`. Received: x={type(data).__name__}",
        stacklevel=5,
    )
    seen = 0
    for batch in data:
        arrays = [a for a in keras.tree.flatten(batch) if _is_array(a)]
        if not arrays:
            return None
        seen += _rows(arrays[0])
    examples = different_examples(data, seen)
    if verbose:
        print(f"N = {examples} training examples")
    return ExampleCount(examples)


def _is_array(x):
    # A sparse matrix has no length, and a DataFrame no `dtype`.
    return len(getattr(x, "shape", None) or ()) > 0


def _rows(array):
    return int(tf.shape(array)[0] if array.shape[0] is None else array.shape[0])


def _count_dataset(dataset, steps_per_epoch):
    found = pass_over(dataset)
    if found is not None and found.distinct != math.inf:
        if found.certain:
            return ExampleCount(int(found.distinct))
        # Without these, the number of steps says nothing about the pass.
        known = found.prefix(1) is not None or found.batches is not None
        if found.total == math.inf:
            known = found.prefix(1) is not None and steps_per_epoch is not None
        if known or (found.total != math.inf and steps_per_epoch is None):
            return _estimate(found)
    batches = int(dataset.cardinality())
    if batches < 0 and steps_per_epoch is None:
        return None
    for batch in dataset.take(1):
        return _of_batches(
            batch, None if batches < 0 else batches, steps_per_epoch, dataset
        )
    return ExampleCount(0)  # the data set is empty


def _estimate(found: Pass):
    finite = found.total != math.inf

    def expected(steps):
        number = found.prefix(steps)
        return found.total if number is None and finite else number

    return ExampleCount(
        int(found.distinct),
        exact=False,
        batches=int(found.batches) if finite and found.batches else None,
        expected=expected,
    )


def _of_batches(batch, batches, steps_per_epoch, dataset=None):
    """Estimates the number of examples from the first batch."""
    steps = steps_per_epoch if batches is None else batches
    arrays = [a for a in keras.tree.flatten(batch) if _is_array(a)]
    if steps is None or not arrays:
        return None
    return ExampleCount(
        steps * _rows(arrays[0]),
        exact=False,
        batches=steps,
        endless=batches is None,
        repeated=dataset is not None and repeats(dataset),
    )


def _count_py_dataset(dataset, steps_per_epoch):
    batches = dataset.num_batches
    count = _of_batches(dataset[0], batches, steps_per_epoch)
    if batches is None or count is None or batches < 2:
        return count
    rest = _of_batches(dataset[batches - 1], 1, None)
    if rest is None:
        return count
    examples = count.examples // batches * (batches - 1) + rest.examples
    return dataclasses.replace(count, examples=examples)


def _count_loader(loader, steps_per_epoch):
    """Estimates the size of a loader of batches, such as that of PyTorch."""
    batch = next(iter(loader), None)
    return _of_batches(batch, len(loader), steps_per_epoch)
