"""Sparse matrices and tensors, of which a batch at a time becomes dense."""

from typing import Any

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf


def is_sparse(x: Any) -> bool:
    """Returns whether `x` is a SciPy sparse matrix or a `tf.SparseTensor`.

    Args:
        x: Any object.
    """
    return scipy.sparse.issparse(x) or isinstance(x, tf.SparseTensor)


def to_dense(data: Any) -> Any:
    """Returns nested tensors, with dense ones in place of the sparse ones.

    Args:
        data: Nested tensors, some of which may be `None`.
    """
    return keras.tree.map_structure(_to_dense, data)


def _to_dense(x):
    if not isinstance(x, tf.SparseTensor):
        return x
    # `tf.sparse.to_dense` may lose the static shape.
    return tf.ensure_shape(tf.sparse.to_dense(x), x.shape)


class SparseRows:
    """The rows of sparse data. An index returns them as a dense array.

    Args:
        x: A SciPy sparse matrix, or a `tf.SparseTensor` of numbers with the
            examples on the first axis.

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
