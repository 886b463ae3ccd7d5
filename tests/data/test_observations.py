"""N counts the tokens of sequences if `observations="positions"`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_bdl as bdl
from keras_bdl import curvature
from keras_bdl.posteriors._gaussian import layout_and_arrays
from tests.helpers import cross_entropy

N, TIME, CLASSES = 6, 3, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, TIME, 2)).astype("float32")
Y = RNG.integers(0, CLASSES, (N, TIME))
# Whole steps are zeros, at the end of two sequences.
PADDED = (
    X * (np.arange(TIME) < np.array([2, 3, 3, 1, 3, 3])[:, None])[..., None]
)


def tagger(optimizer="sgd", *, masked=False, layer=layers.Dense, **compile):
    model = bdl.Sequential(
        [
            keras.Input((TIME, 2)),
            *([layers.Masking()] if masked else []),
            layer(CLASSES),
        ]
    )
    compile = {"observations": "positions", **compile}
    model.compile(optimizer, cross_entropy(), **compile)
    return model


def mean_square(model, x):
    """The mean over tokens, from the gradient of each sequence's sum."""
    kept = np.any(x != 0, axis=-1)
    squares = []
    for i in range(N):
        with tf.GradientTape() as tape:
            each = keras.losses.sparse_categorical_crossentropy(
                Y[i], model(x[i : i + 1])[0], from_logits=True
            )
            loss = tf.reduce_sum(tf.boolean_mask(each, kept[i]))
        variables = [v.value for v in model.trainable_variables]
        squares.append([g**2 for g in tape.gradient(loss, variables)])
    return [np.sum(s, 0) / kept.sum() for s in zip(*squares, strict=True)]


def adapted(units):
    return layers.Dense(units, lora_rank=2)


@pytest.mark.parametrize("layer", [layers.Dense, adapted])
@pytest.mark.parametrize("masked", [False, True])
def test_squares_are_of_whole_sequences_and_a_mean_over_tokens(masked, layer):
    x = PADDED if masked else X
    model = tagger(masked=masked, layer=layer)
    model.set_weights([RNG.normal(size=w.shape) for w in model.weights])
    _, squares = curvature.second_moments(
        model, (x, Y), observations="positions"
    )
    for found, expected in zip(squares, mean_square(model, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_factors_of_one_sequence_have_the_product_of_the_squares():
    # The squares of one sequence of one token are a product of both factors.
    x, y = X[:1, :1], Y[:1, :1]
    model = tagger()
    (single,) = curvature.kronecker_factors(model, (x, y))
    # Three copies of the token in one sequence: the sum of their losses.
    x, y = np.repeat(x, TIME, 1), np.repeat(y, TIME, 1)
    (copies,) = curvature.kronecker_factors(
        model, (x, y), observations="positions"
    )
    # Factors over 3 positions are 3 A and S / 3 of the sum's square, 9 A S,
    # which is divided by 3 observations.
    np.testing.assert_allclose(copies.inputs, 3 * single.inputs, rtol=1e-5)
    np.testing.assert_allclose(
        copies.outputs, single.outputs / 3, rtol=1e-4, atol=1e-7
    )


def test_ignored_class_is_left_out_like_a_masked_position():
    y = np.where(RNG.random(Y.shape) < 0.4, -1, Y)
    model = tagger()
    loss = keras.losses.SparseCategoricalCrossentropy(True, ignore_class=-1)
    model.compile("sgd", loss, observations="positions")
    _, squares = curvature.second_moments(
        model, (X, y), observations="positions"
    )
    expected = []
    for x, labels in zip(X, y, strict=True):
        with tf.GradientTape() as tape:
            each = keras.losses.sparse_categorical_crossentropy(
                np.maximum(labels, 0), model(x[None])[0], from_logits=True
            )
            total = tf.reduce_sum(tf.where(labels >= 0, each, 0.0))
        variables = [v.value for v in model.trainable_variables]
        expected.append([g**2 for g in tape.gradient(total, variables)])
    for found, rows in zip(squares, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(
            found, np.sum(rows, 0) / (y >= 0).sum(), rtol=1e-5
        )
    model.compile(bdl.IVON(), loss, observations="positions")
    with pytest.raises(ValueError, match="mask or `ignore_class` leaves out"):
        model.fit(X, y, verbose=0)


@pytest.mark.parametrize(
    "estimate",
    [bdl.extend.SquaredGradient(), bdl.objectives.PerExampleFisher()],
)
def test_taylor_vi_of_sequences_of_one_token_equals_that_of_tokens(estimate):
    # Other tokens have no influence, so squares of sequences are of tokens.
    x = X * (np.arange(TIME) == 0)[:, None]
    states = []
    for inputs, labels, shape in (
        (x, Y, (TIME, 2)),
        (x.reshape(-1, 2), Y.ravel(), (2,)),
    ):
        model = bdl.Sequential(
            [
                keras.Input(shape),
                layers.Dense(
                    CLASSES, use_bias=False, kernel_initializer="ones"
                ),
            ]
        )
        objective = bdl.objectives.TaylorVI(
            "diagonal", hessian_diagonal=estimate
        )
        model.compile(
            keras.optimizers.SGD(0.1),
            cross_entropy(),
            objective=objective,
            observations="positions",
        )
        model.fit(inputs, labels, batch_size=len(inputs), epochs=2, verbose=0)
        states.append(
            [
                *model.get_weights(),
                *(np.array(v) for v in objective.trainable_variables),
            ]
        )
    for a, b in zip(*states, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_vogn_takes_the_squares_of_tokens(masked):
    x = PADDED if masked else X
    size = int(np.any(x != 0, axis=-1).sum())
    vogn = bdl.VOGN(
        initial_curvature="first_batch", dataset_size=size if masked else None
    )
    model = tagger(vogn, masked=masked)
    expected = mean_square(model, x)
    model.fit(x, Y, batch_size=N, verbose=0)
    assert float(vogn.dataset_size.value()) == size
    for found, square in zip(vogn._curvatures, expected, strict=True):
        np.testing.assert_allclose(found, square, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("optimizer", [bdl.IVON, bdl.ATMC])
def test_fit_counts_tokens(optimizer):
    optimizer = optimizer()
    tagger(optimizer).fit(X, Y, batch_size=4, verbose=0)
    assert optimizer.dataset_size.counted == N * TIME


def test_kl_of_a_layer_is_divided_by_the_number_of_tokens():
    kl = []
    for observations, size in (("positions", N * TIME), ("examples", N)):
        keras.utils.set_random_seed(0)
        model = tagger(
            layer=bdl.layers.MeanFieldDense, observations=observations
        )
        logs = model.fit(X, Y, batch_size=N, verbose=0).history
        assert logs["loss"][0] == pytest.approx(logs["nll"][0] + logs["kl"][0])
        kl.append(size * logs["kl"][0])
    assert kl[0] == pytest.approx(kl[1], rel=1e-5)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_laplace_of_sequences_equals_laplace_of_their_tokens(structure):
    model = tagger()
    flat = bdl.Sequential([keras.Input((2,)), layers.Dense(CLASSES)])
    flat.compile("sgd", cross_entropy())
    flat.set_weights(model.get_weights())
    of_sequences, of_tokens = (
        bdl.fit_laplace(
            net, data, structure=structure, refinements=0, verbose=0
        )
        for net, data in (
            (model, (X, Y)),
            (flat, (X.reshape(-1, 2), Y.ravel())),
        )
    )
    for a, b in zip(
        *(
            layout_and_arrays(p.covariance_blocks())[1]
            for p in (of_sequences, of_tokens)
        ),
        strict=True,
    ):
        # The eigenvectors of a factor have any sign.
        np.testing.assert_allclose(abs(a), abs(b), rtol=1e-4, atol=1e-6)
    assert of_sequences.log_marginal_likelihood == pytest.approx(
        of_tokens.log_marginal_likelihood, rel=1e-5
    )


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="number of positions without those"):
        tagger(bdl.IVON(), masked=True).fit(PADDED, Y, verbose=0)
    with pytest.raises(ValueError, match="outputs without a mask"):
        bdl.fit_laplace(tagger(masked=True), (PADDED, Y), verbose=0)
    with pytest.warns(UserWarning, match="dataset_size=6, counted 18"):
        tagger(bdl.IVON(dataset_size=N)).fit(X, Y, verbose=0)
    open_length = bdl.Sequential(
        [keras.Input((None, 2)), layers.Dense(CLASSES)]
    )
    open_length.compile(bdl.IVON(), cross_entropy(), observations="positions")
    with pytest.raises(ValueError, match="Give a fixed shape to `keras.Input`"):
        open_length.fit(X, Y, verbose=0)
    with pytest.raises(ValueError, match="`observations` must be one of"):
        tagger(observations="tokens")
    inputs = keras.Input((TIME, 2))
    two = bdl.Model(inputs, [layers.Dense(2)(inputs), layers.Dense(2)(inputs)])
    two.compile(bdl.IVON(), cross_entropy(), observations="positions")
    with pytest.raises(ValueError, match="needs a model with one output"):
        two.fit(X, [Y % 2, Y % 2], verbose=0)
