"""What plain Keras takes in `fit` and `predict`, our models take, too."""

import keras
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf

import keras_bdl as bdl

rng = np.random.default_rng(0)
X = rng.normal(size=(20, 6)) * (rng.uniform(size=(20, 6)) > 0.5)
X = X.astype("float32")
Y = X @ rng.normal(size=(6, 1)).astype("float32")
WORDS = rng.integers(1, 9, size=30)
LOSS = bdl.likelihoods.Gaussian(0.5)

KINDS = {
    "DataFrame": pd.DataFrame,
    "csr_matrix": scipy.sparse.csr_matrix,
    "coo_matrix": scipy.sparse.coo_matrix,
    "csr_array": scipy.sparse.csr_array,
    "SparseTensor": tf.sparse.from_dense,
}


def network(cls, optimizer="sgd", sparse=False):
    keras.utils.set_random_seed(0)
    model = cls(
        [keras.Input((6,), sparse=sparse), keras.layers.Dense(1, name="d")]
    )
    model.compile(optimizer, LOSS)
    return model


@pytest.mark.parametrize(
    "kind, sparse",
    [
        ("DataFrame", False),
        ("csr_matrix", False),
        ("coo_matrix", True),
        ("SparseTensor", True),
    ],
)
def test_training_and_prediction_are_those_of_keras(kind, sparse):
    data = KINDS[kind](X)
    ours, plain = (
        network(cls, sparse=sparse)
        for cls in (bdl.Sequential, keras.Sequential)
    )
    for model in (ours, plain):
        model.fit(data, Y, batch_size=8, shuffle=False, verbose=0)
    expected = plain.predict(data, verbose=0)
    np.testing.assert_array_equal(ours.predict(data, verbose=0), expected)
    for read in (data, iter([data])):
        p = bdl.predict(ours, read, verbose=0)
        np.testing.assert_allclose(p.mean, expected, rtol=1e-5, atol=1e-6)
    dense = bdl.fit_laplace(ours, (X, Y), prior_precision=1.0, verbose=0)
    found = bdl.fit_laplace(ours, (data, Y), prior_precision=1.0, verbose=0)
    for one, other in zip(
        keras.tree.flatten(found.get_state()),
        keras.tree.flatten(dense.get_state()),
        strict=True,
    ):
        if isinstance(one, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_n_is_the_number_of_rows(kind):
    model = network(bdl.Sequential, bdl.SGLD(1e-4))
    model.fit(KINDS[kind](X), pd.DataFrame(Y), verbose=0)
    assert model.optimizer.dataset_size.counted == 20


def test_given_n_is_compared_with_the_rows_of_a_sparse_matrix():
    model = network(bdl.Sequential, bdl.SGLD(1e-4, dataset_size=21))
    with pytest.warns(UserWarning, match="dataset_size=21, counted 20"):
        model.fit(KINDS["csr_matrix"](X), pd.Series(Y[:, 0]), verbose=0)


@pytest.mark.parametrize("optimizer", [bdl.VOGN, bdl.IVON, bdl.KFAC])
def test_methods_train_on_sparse_inputs_as_on_dense_ones(optimizer):
    weights = []
    for data in (X, scipy.sparse.csr_matrix(X)):
        model = network(bdl.Sequential, optimizer(1e-2, seed=0), sparse=True)
        model.fit(data, Y, shuffle=False, batch_size=10, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_several_inputs_of_different_kinds_are_counted_and_predicted():
    frame, matrix = keras.Input((6,), name="frame"), keras.Input((6,), name="m")
    both = keras.layers.Concatenate()([frame, matrix])
    model = bdl.Model(
        {"frame": frame, "m": matrix}, bdl.layers.MeanFieldDense(1)(both)
    )
    model.compile("adam", LOSS)
    data = {"frame": pd.DataFrame(X), "m": scipy.sparse.csr_matrix(X)}
    model.fit(data, Y, validation_split=0.25, verbose=0)
    assert model.layers[-1].dataset_size.counted == 15
    p = bdl.predict(model, data, samples=4, verbose=0)
    same = bdl.predict(model, {"frame": X, "m": X}, samples=4, verbose=0)
    np.testing.assert_allclose(p.mean, same.mean, rtol=1e-5, atol=1e-6)


def test_ragged_tensors_are_counted():
    model = bdl.Sequential(
        [
            keras.Input((None,), ragged=True, dtype="int32"),
            keras.layers.Embedding(9, 3),
            keras.layers.Lambda(
                lambda x: tf.reduce_mean(x, axis=1), output_shape=(3,)
            ),
            keras.layers.Dense(1),
        ]
    )
    model.compile(bdl.SGLD(1e-4), LOSS)
    lengths = [1, 2] * 10
    model.fit(tf.RaggedTensor.from_row_lengths(WORDS, lengths), Y, verbose=0)
    assert model.optimizer.dataset_size.counted == 20
