import keras
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf

from keras_bdl._data._batches import Batches

X = np.arange(14, dtype="float32").reshape(7, 2)
Y = np.arange(7)


class Pairs(keras.utils.PyDataset):
    """The examples of `X` in batches of three."""

    num_batches = 3

    def __getitem__(self, index):
        rows = slice(3 * index, 3 * index + 3)
        return X[rows], Y[rows], np.ones(len(X[rows]))


SOURCES = {
    "dataset": lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(3),
    "py_dataset": lambda: Pairs(),
    "generator": lambda: (Pairs()[i] for i in range(3)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_are_what_the_source_gives(kind):
    batches = list(Batches(SOURCES[kind]()))
    assert [b.size for b in batches] == [3, 3, 1]
    assert [b.start for b in batches] == [0, 3, 6]
    np.testing.assert_array_equal(
        np.concatenate([b.inputs for b in batches]), X
    )
    np.testing.assert_array_equal(np.concatenate([b.y for b in batches]), Y)


def test_arrays_are_one_chunk_and_other_sources_bounded_ones(monkeypatch):
    monkeypatch.setattr(Batches, "buffer_bytes", 2 * X[:3].nbytes)
    assert [len(list(c)) for c in Batches(X, batch_size=3).chunks()] == [3]
    chunks = Batches(SOURCES["generator"]()).chunks()
    assert [len(chunk) for chunk in chunks] == [2, 1]


def test_padding_repeats_the_last_example():
    *_, last = Batches({"a": X, "b": [Y, Y]}, batch_size=4, pad=True)
    np.testing.assert_array_equal(last.inputs["a"], X[[4, 5, 6, 6]])
    np.testing.assert_array_equal(last.inputs["b"][1], Y[[4, 5, 6, 6]])
    assert last.size == 3


def test_steps_end_data_that_repeat_forever():
    endless = tf.data.Dataset.from_tensors(X).repeat()
    assert len(list(Batches(endless, steps=2))) == 2
    assert Batches(endless, steps=2).num_batches == 2
    with pytest.warns(UserWarning, match="has 3 batches.*steps=5"):
        list(Batches(SOURCES["dataset"](), steps=5))


BAD = X.copy()
BAD[4, 1] = np.nan


@pytest.mark.parametrize(
    "data, kwargs, match",
    [
        (X[:0], {}, "at least one example"),
        (iter([]), {}, "at least one example"),
        (tf.data.Dataset.from_tensor_slices(X).batch(3).take(0), {}, "at leas"),
        ([], {}, "at least one example"),
        ([X, X[:3]], {}, r"same number of examples.*\[7, 3\]"),
        (BAD, {}, r"`x` must not contain NaN.*in example 4"),
        ({"a": X, "b": [BAD]}, {}, r"NaN in `x\['b'\]\[0\]`"),
        (iter([X, BAD]), {}, "first in example 11"),
        (iter([(X, Y[:3])]), {}, "one label for each example"),
        (np.array([["a", 1]], object), {}, "numbers or strings.*dtype=object"),
        (None, {}, "must be arrays with the examples"),
        (tf.data.Dataset.from_tensor_slices(Y), {}, "a batched `tf.data"),
        (tf.ragged.constant([[1.0], []]), {}, "rows of one length"),
        (scipy.sparse.csr_matrix(BAD), {}, "in example 4"),
        (tf.sparse.from_dense(BAD), {}, "in example 4"),
        (iter([X, scipy.sparse.coo_matrix(BAD)]), {}, "in example 11"),
        (
            tf.data.Dataset.from_tensors(X).repeat(),
            {},
            "`x` must be finite. .* give `st",
        ),
        (
            tf.data.Dataset.from_tensors(X),
            {"batch_size": 2},
            "comes in batches",
        ),
        (X, {"batch_size": 0}, "`batch_size` must be a positive integer"),
        (X, {"steps": 1.5}, "`steps` must be a positive integer"),
    ],
)
def test_wrong_data_are_refused(data, kwargs, match):
    with pytest.raises(ValueError, match=match):
        list(Batches(data, **kwargs))


def test_tensors_of_strings_are_data():
    words = tf.data.Dataset.from_tensor_slices(["a", "b", "c"]).batch(2)
    assert [list(b.inputs) for b in Batches(words)] == [[b"a", b"b"], [b"c"]]


SPARSE = {
    "csr": scipy.sparse.csr_matrix,
    "coo": scipy.sparse.coo_matrix,
    "array": scipy.sparse.csr_array,
    "tensor": tf.sparse.from_dense,
    "frame": pd.DataFrame,
}


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_data_and_data_frames_give_dense_batches(kind):
    data = SPARSE[kind](X * (X > 3))
    for read in (
        Batches(data, batch_size=3),
        Batches(iter([data])),
        Batches({"a": data, "b": [X]}, batch_size=3),
    ):
        batches = [keras.tree.flatten(b.inputs)[0] for b in read]
        assert all(batch.dtype == np.float32 for batch in batches)
        np.testing.assert_array_equal(np.concatenate(batches), X * (X > 3))
    wide = Batches(SPARSE[kind](X.astype("float64")))
    assert next(iter(wide)).inputs.dtype == np.float32  # as in `fit`


def test_a_sparse_tensor_may_have_more_axes():
    x = np.arange(24.0, dtype="float32").reshape(3, 2, 4) % 3
    read = Batches(tf.sparse.from_dense(x), batch_size=2)
    np.testing.assert_array_equal(np.concatenate([b.inputs for b in read]), x)


def test_a_series_is_a_column():
    (batch,) = Batches(pd.Series(X[:, 0], index=range(3, 10)))
    np.testing.assert_array_equal(batch.inputs, X[:, :1])
