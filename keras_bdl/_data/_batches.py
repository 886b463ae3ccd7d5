"""Batches of a data set, read in parts of bounded size."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_count
from keras_bdl._data._sparse_rows import SparseRows
from keras_bdl._data._sparse_rows import is_sparse


@dataclasses.dataclass
class Batch:
    """One batch of examples, as NumPy arrays.

    Attributes:
        inputs: Nested arrays. `Batches(pad=True)` may append copies of the
            last example.
        size: Number of examples without these copies.
        start: Position of the first example in the data.
        y: Labels of the examples, or `None`.
    """

    inputs: Any
    size: int
    start: int
    y: Any = None


class Batches:
    """Reads any kind of data batch by batch.

    A generator can be read once. All other data can be read again.

    Args:
        data: Arrays or nested arrays with the examples on the first axis, also
            data frames and sparse matrices, a batched `tf.data.Dataset`, a
            `keras.utils.PyDataset` or an iterator over batches. A batch is `x`,
            `(x, y)` or `(x, y, sample_weight)`; weights are ignored. Batches
            of sparse data are dense.
        batch_size: Batch size for arrays. Defaults to `None`, 32.
        steps: Number of batches to read. Defaults to `None`, all.
        pad: Whether to repeat the last example of a batch that is smaller
            than earlier batches, so that all batches have one shape. Defaults
            to `False`.
        name: Name of the data in error messages. Defaults to `"x"`.

    Attributes:
        buffer_bytes: Size in bytes at which a part of `chunks` ends.
    """

    buffer_bytes = 2**28

    def __init__(
        self,
        data: Data,
        *,
        batch_size: int | None = None,
        steps: int | None = None,
        pad: bool = False,
        name: str = "x",
    ):
        if batch_size is not None:
            check_count("batch_size", batch_size)
        if steps is not None:
            check_count("steps", steps)
        self.name = name
        self.in_memory = is_arrays(data)
        if self.in_memory:
            data = self._as_arrays(data)
            self.batch_size = min(batch_size or 32, _length(data))
        elif batch_size is not None:
            raise ValueError(
                f"`batch_size` must be `None` if `{name}` already comes in "
                "batches. Set the size in the data, with `.batch()`. "
                f"Received: batch_size={batch_size}, {name}={data}"
            )
        self.data = data
        self.steps = steps
        self.pad = pad
        self._check_ends()

    @property
    def num_batches(self) -> Any:
        """Number of batches, or `None` if only reading the data can tell."""
        known = self._batches_of_data()
        if known is None or self.steps is None:
            return known
        return min(known, self.steps)

    def chunks(self, nbytes: int | None = None) -> Iterator[Iterable[Batch]]:
        """Yields parts of the data that can be read many times.

        The data are read into memory part by part.

        Args:
            nbytes: Size of its inputs in bytes at which a part ends. Defaults
                to `None`: arrays are one part, and a part of other data ends at
                `buffer_bytes`.
        """
        if nbytes is None and self.in_memory:
            yield self
            return
        nbytes = self.buffer_bytes if nbytes is None else nbytes
        chunk: list[Batch] = []
        held = 0
        for batch in self:
            chunk.append(batch)
            held += sum(x.nbytes for x in keras.tree.flatten(batch.inputs))
            if held >= nbytes:
                yield chunk
                chunk, held = [], 0
        if chunk:
            yield chunk

    def __iter__(self) -> Iterator[Batch]:
        full = start = count = 0
        for inputs, y in itertools.islice(self._elements(), self.steps):
            size = _length(inputs)
            full = max(full, size)
            if self.pad and size < full:
                inputs = keras.tree.map_structure(
                    lambda x: _repeat_last(x, full),  # noqa: B023
                    inputs,
                )
            yield Batch(inputs, size, start, y)
            start += size
            count += 1
        if count == 0:
            raise ValueError(
                f"`{self.name}` must hold at least one example. "
                f"Received: {self.name}={self.data} without a batch. A "
                "generator can be read only once."
            )
        if self.steps is not None and count < self.steps:
            warnings.warn(
                f"`{self.name}` has {count} batches, fewer than "
                f"`steps`. Received: steps={self.steps}",
                stacklevel=2,
            )

    def _elements(self):
        if self.in_memory:
            for start in range(0, _length(self.data), self.batch_size):
                rows = slice(start, start + self.batch_size)
                yield (
                    keras.tree.map_structure(
                        lambda x: _standardize(x[rows]),  # noqa: B023
                        self.data,
                    ),
                    None,
                )
            return
        start = 0
        for element in self._source():
            x, y, _ = keras.utils.unpack_x_y_sample_weight(element)
            x = self._as_arrays(x, start)
            start += _length(x)
            if y is not None:
                y = keras.tree.map_structure(np.asarray, y)
                self._check_labels(x, y)
            yield keras.tree.map_structure(_standardize, x), y

    def _source(self):
        if not isinstance(self.data, keras.utils.PyDataset):
            yield from self.data
            return
        self.data.on_epoch_begin()
        for index in range(self.num_batches):
            yield self.data[index]
        self.data.on_epoch_end()

    def _as_arrays(self, x, start=0):
        arrays = keras.tree.map_structure(self._as_array, x)
        leaves = keras.tree.flatten_with_path(arrays)
        self._check_lengths([len(array) for _, array in leaves])
        for path, array in leaves:
            self._check_numbers(path, array, start)
        return arrays

    def _check_lengths(self, lengths):
        if len(set(lengths)) > 1:
            raise ValueError(
                f"`{self.name}` must have the same number of examples in "
                f"every array. Received: {lengths}"
            )
        if not lengths or lengths[0] == 0:
            raise ValueError(
                f"`{self.name}` must hold at least one example. "
                f"Received: arrays of length {lengths}"
            )

    def _as_array(self, x):
        if is_sparse(x) and x.dtype != tf.string and x.shape:
            return SparseRows(x)
        if not isinstance(x, (tf.SparseTensor, tf.RaggedTensor)):
            array = np.asarray(x)
            if _is_series(x):  # a column, as in `fit`
                array = array[:, np.newaxis]
            if array.ndim > 0:
                return array
        raise ValueError(
            f"`{self.name}` must be arrays with the examples on the first "
            "axis and rows of one length, a batched `tf.data.Dataset`, a "
            "`keras.utils.PyDataset` or a generator of batches. "
            f"Received: {x!r} of type {type(x).__name__}"
        )

    def _check_numbers(self, path, array, start):
        place = f"`{self.name}{''.join(f'[{key!r}]' for key in path)}`"
        if isinstance(array, SparseRows):
            row = array.first_nan()
            if row is not None:
                self._refuse_nan(place, start + row)
            return
        if array.dtype == object and not _is_text(array):
            raise ValueError(
                f"`{self.name}` must hold arrays of numbers or strings, "
                "all rows of one length. "
                f"Received: dtype=object in {place}"
            )
        # The minimum is NaN if any entry is NaN, and needs no memory.
        floating = np.issubdtype(array.dtype, np.inexact)
        if not floating or not array.size or not np.isnan(np.min(array)):
            return
        self._refuse_nan(place, start + int(np.argwhere(np.isnan(array))[0][0]))

    def _refuse_nan(self, place, row):
        raise ValueError(
            f"`{self.name}` must not contain NaN. Received: NaN in {place}, "
            f"first in example {row}. Remove such examples or fill the gaps."
        )

    def _check_labels(self, x, y):
        for labels in keras.tree.flatten(y):
            if labels.ndim == 0 or len(labels) != _length(x):
                raise ValueError(
                    f"`{self.name}` must have one label for each example. "
                    f"Received: a batch with {_length(x)} examples and "
                    f"labels of shape {labels.shape}"
                )

    def _batches_of_data(self):
        if self.in_memory:
            return math.ceil(_length(self.data) / self.batch_size)
        if isinstance(self.data, tf.data.Dataset):
            cardinality = int(self.data.cardinality())
            if cardinality == tf.data.INFINITE_CARDINALITY:
                return math.inf
            return None if cardinality < 0 else cardinality
        if isinstance(self.data, keras.utils.PyDataset):
            # For endless data, the attribute of Keras is `None`.
            number = self.data.num_batches
            return math.inf if number is None else number
        return None

    def _check_ends(self):
        if self.num_batches == math.inf:
            # Only `x` has an argument `steps`.
            steps = "give `steps`, the number of batches to read, or "
            raise ValueError(
                f"`{self.name}` must be finite. To fix this, "
                f"{steps if self.name == 'x' else ''}"
                "cut the data with `.take(batches)`. "
                f"Received: {self.name}={self.data}, which repeats forever"
            )


def is_arrays(data: Data) -> bool:
    """Returns whether data are arrays, and not batches of arrays.

    Args:
        data: Any data that `Batches` reads.
    """
    batched = (tf.data.Dataset, keras.utils.PyDataset)
    return not isinstance(data, batched) and not hasattr(data, "__next__")


def _is_series(x):
    """Returns whether `x` is a pandas `Series`, without importing pandas."""
    return type(x).__name__ == "Series" and hasattr(x, "to_frame")


def _is_text(array):
    """Returns whether an array of objects holds only strings."""
    return all(isinstance(entry, (str, bytes)) for entry in array.flat)


def _length(arrays):
    return len(keras.tree.flatten(arrays)[0])


def _standardize(array):
    if isinstance(array, SparseRows):
        array = array[:]
    # `fit` converts in the same way, because NumPy creates `float64` arrays.
    if array.dtype == np.float64:
        return array.astype(keras.config.floatx())
    return array


def _repeat_last(array, length):
    # The model may not accept zeros, but it accepts a copy of an example.
    padding = np.repeat(array[-1:], length - len(array), axis=0)
    return np.concatenate([array, padding])
