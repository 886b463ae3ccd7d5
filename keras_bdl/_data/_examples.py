"""Batches with inputs, labels and sample weights."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl._data._batches import Batch
from keras_bdl._data._batches import Batches
from keras_bdl._data._batches import is_arrays


def example_batches(
    data: Data, batch_size: int | None, *, pad: bool = True
) -> tuple[Batches, int | None]:
    """Returns the `Batches` of a data set and their number, if known.

    The inputs of each batch are a dictionary with `"x"` and, if present, the
    labels `"y"` and the sample weights `"weight"`.

    Args:
        data: Arrays `x`, `(x, y)` or `(x, y, sample_weight)`, or a batched
            `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of
            such batches.
        batch_size: Batch size for arrays; `None` means 32.
        pad: Whether to pad all batches to one size. Defaults to `True`.
    """
    if is_arrays(data):
        batches = Batches(
            _named(data), batch_size=batch_size, pad=pad, name="data"
        )
        return batches, batches.num_batches
    number = Batches(data, batch_size=batch_size, name="data").num_batches
    named = ((_named(element),) for element in _elements(data, number))
    return Batches(named, pad=pad, name="data"), number


def _elements(data, number):
    if not isinstance(data, keras.utils.PyDataset):
        yield from data
        return
    data.on_epoch_begin()
    for index in range(number):
        yield data[index]
    data.on_epoch_end()


def _named(element):
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


def _without_index(array):
    return array.to_numpy() if hasattr(array, "to_frame") else array


class TrainingData:
    """Labelled batches that can be read again and again.

    Args:
        data: Arrays `(x, y)` or `(x, y, sample_weight)`, or a batched
            `tf.data.Dataset` or a `keras.utils.PyDataset` of such batches.
        batch_size: Batch size for arrays; `None` means 32.

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
