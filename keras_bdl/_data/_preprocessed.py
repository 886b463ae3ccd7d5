"""Data that a model preprocesses itself, such as the texts of KerasHub.

A task of KerasHub has a `preprocessor`, and its `fit` and `predict` apply the
method `preprocess_samples` to every batch. The functions here do the same. They
look for these two attributes, so this package does not import KerasHub.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_count
from keras_bdl._data._batches import is_arrays


def preprocesses(model: keras.Model) -> bool:
    """Returns whether a model preprocesses its data in `fit` and `predict`.

    Args:
        model: Any Keras model.
    """
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

    Args:
        model: Any Keras model.
        data: Arrays, lists of strings, a `tf.data.Dataset`, a
            `keras.utils.PyDataset` or a generator of batches.
        batch_size: Batch size for arrays; `None` means 32.
        labelled: Whether a tuple of arrays is `(x, y)` or
            `(x, y, sample_weight)`. Defaults to `False`: a tuple is nested
            inputs.
    """
    if not preprocesses(model):
        return data, batch_size

    def prepare(x, y=None, sample_weight=None):
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
    def num_batches(self):
        """Number of batches."""
        first: Any = keras.tree.flatten(self._whole[0])[0]
        return math.ceil(len(first) / self._batch_size)

    def __getitem__(self, index):
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
    def num_batches(self):
        """Number of batches."""
        return self._data.num_batches

    def on_epoch_begin(self):
        """Begins a pass over the data."""
        self._data.on_epoch_begin()

    def on_epoch_end(self):
        """Ends a pass over the data."""
        self._data.on_epoch_end()

    def __getitem__(self, index):
        batch = self._data[index]
        return self._prepare(*keras.utils.unpack_x_y_sample_weight(batch))


def _is_ready(model, x):
    """Returns whether inputs are those of the layers of a model."""
    expected = getattr(model, "input", None)
    return (
        isinstance(x, dict)
        and isinstance(expected, dict)
        and set(x) == set(expected)
    )


def _leaves(nested, function):
    """Applies a function to arrays; a list of strings is one array."""
    if isinstance(nested, tuple):
        return tuple(_leaves(part, function) for part in nested)
    if isinstance(nested, dict):
        return {key: _leaves(part, function) for key, part in nested.items()}
    return function(nested)
