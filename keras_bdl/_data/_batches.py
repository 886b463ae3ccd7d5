"""Batches of user data, read in parts of bounded size."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_count


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

    def _elements(self) -> Iterator[Any]:
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

    def _source(self) -> Iterator[Any]:
        if not isinstance(self.data, keras.utils.PyDataset):
            yield from self.data
            return
        self.data.on_epoch_begin()
        for index in range(self.num_batches):
            yield self.data[index]
        self.data.on_epoch_end()

    def _as_arrays(self, x: Any, start: Any = 0) -> Any:
        arrays = keras.tree.map_structure(self._as_array, x)
        leaves = keras.tree.flatten_with_path(arrays)
        self._check_lengths([len(array) for _, array in leaves])
        for path, array in leaves:
            self._check_numbers(path, array, start)
        return arrays

    def _check_lengths(self, lengths: Any) -> None:
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

    def _as_array(self, x: Any) -> Any:
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

    def _check_numbers(self, path: Any, array: Any, start: Any) -> None:
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

    def _refuse_nan(self, place: Any, row: Any) -> None:
        raise ValueError(
            f"`{self.name}` must not contain NaN. Received: NaN in {place}, "
            f"first in example {row}. Remove such examples or fill the gaps."
        )

    def _check_labels(self, x: Any, y: Any) -> None:
        for labels in keras.tree.flatten(y):
            if labels.ndim == 0 or len(labels) != _length(x):
                raise ValueError(
                    f"`{self.name}` must have one label for each example. "
                    f"Received: a batch with {_length(x)} examples and "
                    f"labels of shape {labels.shape}"
                )

    def _batches_of_data(self) -> Any:
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

    def _check_ends(self) -> None:
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
    """Returns whether data are arrays, and not batches of arrays."""
    batched = (tf.data.Dataset, keras.utils.PyDataset)
    return not isinstance(data, batched) and not hasattr(data, "__next__")


def _is_series(x: Any) -> Any:
    """Returns whether `x` is a pandas `Series`, without importing pandas."""
    return type(x).__name__ == "Series" and hasattr(x, "to_frame")


def _is_text(array: Any) -> Any:
    """Returns whether an array of objects holds only strings."""
    return all(isinstance(entry, (str, bytes)) for entry in array.flat)


def _length(arrays: Any) -> Any:
    return len(keras.tree.flatten(arrays)[0])


def _standardize(array: Any) -> Any:
    if isinstance(array, SparseRows):
        array = array[:]
    # `fit` converts in the same way, because NumPy creates `float64` arrays.
    if array.dtype == np.float64:
        return array.astype(keras.config.floatx())
    return array


def _repeat_last(array: Any, length: Any) -> Any:
    # The model may not accept zeros, but it accepts a copy of an example.
    padding = np.repeat(array[-1:], length - len(array), axis=0)
    return np.concatenate([array, padding])


def is_sparse(x: Any) -> bool:
    """Returns whether `x` is a SciPy sparse matrix or a `tf.SparseTensor`."""
    return scipy.sparse.issparse(x) or isinstance(x, tf.SparseTensor)


def to_dense(data: Any) -> Any:
    """Returns nested tensors, with dense ones in place of the sparse ones."""
    return keras.tree.map_structure(_to_dense, data)


def _to_dense(x: Any) -> Any:
    if not isinstance(x, tf.SparseTensor):
        return x
    # `tf.sparse.to_dense` may lose the static shape.
    return tf.ensure_shape(tf.sparse.to_dense(x), x.shape)


class SparseRows:
    """The rows of sparse data. An index returns them as a dense array.

    Attributes:
        shape: The dense shape.
        dtype: The type of the entries.
    """

    def __init__(self, x: Any):
        self.shape = tuple(int(size) for size in x.shape)
        if isinstance(x, tf.SparseTensor):
            rows = np.prod(self.shape[1:], dtype="int64")
            flat = tf.sparse.reshape(x, (self.shape[0], rows))
            row, column = flat.indices.numpy().T
            entries = flat.values.numpy()
            x = scipy.sparse.csr_matrix(
                (entries, (row, column)), shape=(self.shape[0], rows)
            )
        self._matrix = x.tocsr()
        self.dtype = self._matrix.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        dense = self._matrix[rows].toarray()
        return dense.reshape(-1, *self.shape[1:])

    def first_nan(self) -> int | None:
        """Returns the first row with a NaN, or `None`."""
        if not np.issubdtype(self.dtype, np.inexact):
            return None
        places = np.flatnonzero(np.isnan(self._matrix.data))
        if not places.size:
            return None
        return int(
            np.searchsorted(self._matrix.indptr, places[0], side="right") - 1
        )


def preprocesses(model: keras.Model) -> bool:
    """Returns whether a model preprocesses its data in `fit` and `predict`."""
    return getattr(model, "preprocessor", None) is not None and callable(
        getattr(model, "preprocess_samples", None)
    )


def preprocessed(
    model: keras.Model,
    data: Data,
    batch_size: int | None,
    *,
    labelled: bool = False,
) -> tuple[Data, int | None]:
    """Returns data as the layers of a model expect them, and the batch size.

    Data of a model without a preprocessor are returned as they are. The same
    holds for inputs that are a dictionary with the names of the model's inputs:
    these are preprocessed already.
    """
    if not preprocesses(model):
        return data, batch_size

    def prepare(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if _is_ready(model, x):
            return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
        return model.preprocess_samples(x, y, sample_weight)

    if isinstance(data, tf.data.Dataset):
        return data.map(prepare, tf.data.AUTOTUNE), batch_size
    if isinstance(data, keras.utils.PyDataset):
        return _PreparedBatches(data, prepare), batch_size
    if not is_arrays(data):
        parts = map(keras.utils.unpack_x_y_sample_weight, data)
        return (prepare(*part) for part in parts), batch_size
    if batch_size is not None:
        check_count("batch_size", batch_size)
    whole = (
        keras.utils.unpack_x_y_sample_weight(data)
        if labelled
        else (data, None, None)
    )
    if _is_ready(model, whole[0]):
        return data, batch_size
    return _PreparedArrays(whole, prepare, batch_size or 32), None


class _PreparedArrays(keras.utils.PyDataset):
    """Batches of arrays, each preprocessed when it is read."""

    def __init__(self, whole: tuple, prepare: Callable, batch_size: int):
        super().__init__()
        self._whole = [
            None if part is None else _leaves(part, np.asarray)
            for part in whole
        ]
        self._prepare = prepare
        self._batch_size = batch_size

    @property
    def num_batches(self) -> Any:
        """Number of batches."""
        first: Any = keras.tree.flatten(self._whole[0])[0]
        return math.ceil(len(first) / self._batch_size)

    def __getitem__(self, index: Any) -> Any:
        start = index * self._batch_size
        rows = slice(start, start + self._batch_size)
        return self._prepare(
            *(
                None if part is None else _leaves(part, lambda a: a[rows])
                for part in self._whole
            )
        )


class _PreparedBatches(keras.utils.PyDataset):
    """The batches of a `PyDataset`, each preprocessed when it is read."""

    def __init__(self, data: keras.utils.PyDataset, prepare: Callable):
        super().__init__()
        self._data = data
        self._prepare = prepare

    @property
    def num_batches(self) -> Any:
        """Number of batches."""
        return self._data.num_batches

    def on_epoch_begin(self) -> None:
        """Begins a pass over the data."""
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Ends a pass over the data."""
        self._data.on_epoch_end()

    def __getitem__(self, index: Any) -> Any:
        batch = self._data[index]
        return self._prepare(*keras.utils.unpack_x_y_sample_weight(batch))


def _is_ready(model: Any, x: Any) -> Any:
    """Returns whether inputs are those of the layers of a model."""
    expected = getattr(model, "input", None)
    return (
        isinstance(x, dict)
        and isinstance(expected, dict)
        and set(x) == set(expected)
    )


def _leaves(nested: Any, function: Any) -> Any:
    """Applies a function to arrays; a list of strings is one array."""
    if isinstance(nested, tuple):
        return tuple(_leaves(part, function) for part in nested)
    if isinstance(nested, dict):
        return {key: _leaves(part, function) for key, part in nested.items()}
    return function(nested)


def example_batches(
    data: Data, batch_size: int | None, *, pad: bool = True
) -> tuple[Batches, int | None]:
    """Returns the `Batches` of a data set and their number, if known.

    The inputs of each batch are a dictionary with `"x"` and, if present, the
    labels `"y"` and the sample weights `"weight"`.
    """
    if is_arrays(data):
        batches = Batches(
            _named(data), batch_size=batch_size, pad=pad, name="data"
        )
        return batches, batches.num_batches
    number = Batches(data, batch_size=batch_size, name="data").num_batches
    named = ((_named(element),) for element in _elements(data, number))
    return Batches(named, pad=pad, name="data"), number


def _elements(data: Any, number: Any) -> Iterator[Any]:
    if not isinstance(data, keras.utils.PyDataset):
        yield from data
        return
    data.on_epoch_begin()
    for index in range(number):
        yield data[index]
    data.on_epoch_end()


def _named(element: Any) -> Any:
    x, y, weight = keras.utils.unpack_x_y_sample_weight(element)
    named = {"x": x, "y": y, "weight": weight}
    named = {k: v for k, v in named.items() if v is not None}
    # `Batches` makes a column of a `Series`, which only inputs are.
    for name in named.keys() - {"x"}:
        named[name] = keras.tree.map_structure(_without_index, named[name])
    if weight is not None and np.ndim(weight) != 1:
        raise ValueError(
            "`data` must have one sample weight for each example. "
            f"Received: sample weights of shape {np.shape(weight)}"
        )
    return named


def _without_index(array: Any) -> Any:
    return array.to_numpy() if hasattr(array, "to_frame") else array


class TrainingData:
    """Labelled batches that can be read again and again.

    Attributes:
        examples: Number of examples, known after the first pass.
    """

    def __init__(self, data: Data, batch_size: int | None):
        if hasattr(data, "__next__"):
            raise ValueError(
                "`data` must be data that can be read again: arrays, a "
                "`tf.data.Dataset` or a `keras.utils.PyDataset`. "
                f"Received: data={data}, which can be read once"
            )
        self._data = data
        self._batch_size = batch_size
        batches, self.num_batches = example_batches(data, batch_size, pad=False)
        # Data that are not arrays need a new iterator for each pass.
        self._batches = batches if batches.in_memory else None
        self.examples: Any = None  # an integer after the first pass

    def __iter__(self) -> Iterator[Batch]:
        batches = self._batches
        if batches is None:
            batches, _ = example_batches(
                self._data, self._batch_size, pad=False
            )
        examples = 0
        for batch in batches:
            if "y" not in batch.inputs:
                raise ValueError(
                    "`data` must have labels. Pass `(x, y)`, or batches of "
                    "such pairs. "
                    f"Received: data of type {type(self._data).__name__} "
                    "without labels"
                )
            examples += batch.size
            yield batch
        self.examples = examples
