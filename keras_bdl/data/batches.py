"""Reading a data set batch by batch and holding a bounded part of it."""

import dataclasses
import itertools
import math
import numbers
import warnings

import keras
import numpy as np
import tensorflow as tf


@dataclasses.dataclass
class Batch:
    """Some examples, as NumPy arrays.

    Attributes:
        inputs: Nested arrays, perhaps longer than `size`: see `Batches`.
        size: How many examples there are.
        start: Position of the first one in the data.
        y: Their labels, or `None`.
    """

    inputs: object
    size: int
    start: int
    y: object = None


class Batches:
    """The batches of a data set, whatever holds it.

    A generator is used up by one pass; everything else can be read again.

    Args:
        data: Arrays or nested arrays with the examples on the first axis, a
            batched `tf.data.Dataset`, a `keras.utils.PyDataset` or an
            iterator over batches. The last three give `x`, `(x, y)` or
            `(x, y, sample_weight)`; weights are ignored.
        batch_size: For arrays. Defaults to `None`, 32.
        steps: How many batches to read. Defaults to `None`, all.
        pad: Whether to repeat the last example of a batch that is smaller
            than the ones before, so that all have one shape. Defaults to
            `False`.
        name: What error messages call the data. Defaults to `"x"`.

    Attributes:
        buffer_bytes: How much of data that do not lie in memory anyway may be
            held there at once.
    """

    buffer_bytes = 2**28

    def __init__(
        self,
        data,
        batch_size: int | None = None,
        steps: int | None = None,
        pad: bool = False,
        name: str = "x",
    ):
        check_positive("batch_size", batch_size)
        check_positive("steps", steps)
        self.name = name
        self.in_memory = is_arrays(data)
        if self.in_memory:
            data = self._as_arrays(data)
            self.batch_size = min(batch_size or 32, _length(data))
        elif batch_size is not None:
            raise ValueError(
                f"`batch_size` must be `None` where `{name}` comes in batches "
                "already. Batch the data itself, with `.batch()`. "
                f"Received: batch_size={batch_size}, {name}={data}"
            )
        self.data = data
        self.steps = steps
        self.pad = pad
        self._check_ends()

    @property
    def num_batches(self):
        """How many batches there are, or `None` if only reading tells."""
        known = self._batches_of_data()
        if known is None or self.steps is None:
            return known
        return min(known, self.steps)

    def chunks(self):
        """Yields parts that can be gone through many times.

        Arrays are one part; a part read from elsewhere ends once its inputs
        take `buffer_bytes`.
        """
        if self.in_memory:
            yield self
            return
        chunk, held = [], 0
        for batch in self:
            chunk.append(batch)
            held += sum(x.nbytes for x in keras.tree.flatten(batch.inputs))
            if held >= self.buffer_bytes:
                yield chunk
                chunk, held = [], 0
        if chunk:
            yield chunk

    def __iter__(self):
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
                f"Received: {self.name}={self.data}, from which no batch came"
                " (a generator is used up by one pass)."
            )
        if self.steps is not None and count < self.steps:
            warnings.warn(
                f"`{self.name}` ended early: it has {count} of the `steps` "
                f"{self.steps} batches asked for.",
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
        if not isinstance(x, (tf.SparseTensor, tf.RaggedTensor)):
            array = np.asarray(x)
            if array.ndim > 0:
                return array
        raise ValueError(
            f"`{self.name}` must be made of dense arrays with the examples on "
            "the first axis, a batched `tf.data.Dataset`, a "
            "`keras.utils.PyDataset` or a generator of batches. "
            f"Received: {x!r} of type {type(x).__name__}"
        )

    def _check_numbers(self, path, array, start):
        place = f"`{self.name}{''.join(f'[{key!r}]' for key in path)}`"
        if array.dtype == object and not _is_text(array):
            raise ValueError(
                f"`{self.name}` must be made of arrays of numbers or strings, "
                "all rows of one length. "
                f"Received: dtype=object in {place}"
            )
        # The minimum is NaN if one entry is, and needs no memory.
        floating = np.issubdtype(array.dtype, np.inexact)
        if not floating or not array.size or not np.isnan(np.min(array)):
            return
        row = start + int(np.argwhere(np.isnan(array))[0][0])
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
            # `None` is Keras's word for endless here.
            number = self.data.num_batches
            return math.inf if number is None else number
        return None

    def _check_ends(self):
        if self.num_batches == math.inf:
            # No other data come with an argument `steps`.
            steps = "give `steps`, the number of batches to read, or "
            raise ValueError(
                f"`{self.name}` must end; {steps if self.name == 'x' else ''}"
                "cut the data, with `.take(batches)`. "
                f"Received: {self.name}={self.data}, which repeats for ever"
            )


def is_arrays(data):
    """Whether the data are arrays and not batches of them."""
    batched = (tf.data.Dataset, keras.utils.PyDataset)
    return not isinstance(data, batched) and not hasattr(data, "__next__")


def check_positive(name, value):
    """Raises an error unless the value is a positive integer or `None`."""
    if value is None:
        return
    if not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(
            f"`{name}` must be a positive integer or `None`. "
            f"Received: {name}={value}"
        )


def _is_text(array):
    """Whether an array of objects is what a tensor of strings becomes."""
    return all(isinstance(entry, (str, bytes)) for entry in array.flat)


def _length(arrays):
    return len(keras.tree.flatten(arrays)[0])


def _standardize(array):
    # As Keras does: `float64` is what NumPy happens to make.
    if array.dtype == np.float64:
        return array.astype(keras.config.floatx())
    return array


def _repeat_last(array, length):
    # A row that exists: zeros could leave the domain of the model.
    padding = np.repeat(array[-1:], length - len(array), axis=0)
    return np.concatenate([array, padding])
