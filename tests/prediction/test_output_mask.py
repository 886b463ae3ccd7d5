"""Padding that layers of Keras mask, from the model to the report."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.evaluation import SegmentationScores
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from tests.helpers import cross_entropy
from tests.helpers import predict_arguments

RNG = np.random.default_rng(0)
N, STEPS, CLASSES = 21, 6, 3
LENGTHS = RNG.integers(1, STEPS + 1, N)
KEPT = np.arange(STEPS) < LENGTHS[:, None]
TOKENS = np.where(KEPT, RNG.integers(1, 9, (N, STEPS)), 0)
VECTORS = KEPT[..., None] * RNG.normal(size=(N, STEPS, 2)).astype("float32")
Y = RNG.integers(0, CLASSES, (N, STEPS))


def tagger(*layers, loss=None, **compile_args):
    """Returns a plain Keras model with a label for each token."""
    keras.utils.set_random_seed(1)
    if not layers:
        layers = (
            keras.Input((STEPS,), dtype="int32"),
            keras.layers.Embedding(9, 4, mask_zero=True),
            keras.layers.SimpleRNN(3, return_sequences=True),
            keras.layers.TimeDistributed(keras.layers.Dense(CLASSES)),
        )
    model = keras.Sequential(layers)
    model.compile("sgd", loss or cross_entropy(), **compile_args)
    for weight in model.weights:  # far from 0, so that outputs differ
        weight.assign(3.0 * weight)
    return model


def ensemble(model, count=3):
    return Ensemble(
        [
            [w + s * RNG.normal(size=w.shape) for w in model.get_weights()]
            for s in np.linspace(0.1, 1, count)
        ]
    )


def nll(mean, y=Y, kept=KEPT):
    """The mean over the tokens that are left after padding is removed."""
    return -np.log(mean[kept][np.arange(kept.sum()), y[kept]]).mean()


def masked_vectors():
    return tagger(
        keras.Input((STEPS, 2)),
        keras.layers.Masking(),
        keras.layers.LSTM(3, return_sequences=True),
        keras.layers.Dense(CLASSES),
    )


@pytest.mark.parametrize(
    ("make", "x"), [(tagger, TOKENS), (masked_vectors, VECTORS)]
)
def test_report_has_the_scores_of_keras_without_padding(make, x):
    model = make()
    model.compile(
        loss=model.loss,
        metrics=["accuracy"],
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy(
                name="nll", from_logits=True
            )
        ],
    )
    whole = model.evaluate(x, Y, batch_size=N, verbose=0, return_dict=True)
    batches = model.evaluate(x, Y, batch_size=4, verbose=0, return_dict=True)
    p = bdl.predict(model, x, batch_size=4, verbose=0)
    report = bdl.evaluate(p, Y)
    np.testing.assert_allclose(report.nll, whole["loss"], rtol=1e-5)
    np.testing.assert_array_equal(p.mask, KEPT)
    assert report.num_inputs == KEPT.sum()
    np.testing.assert_allclose(report.nll, batches["nll"], rtol=1e-5)
    np.testing.assert_allclose(report.accuracy, batches["accuracy"], rtol=1e-5)
    np.testing.assert_allclose(report.nll, nll(p.mean), rtol=1e-5)
    # Padding would change the score.
    everywhere = nll(p.mean, kept=np.ones_like(KEPT))
    assert abs(report.nll - everywhere) > 0.01


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_samples": True},
        {"linearized": True},
        {"link": "monte_carlo"},
        {"link": "probit"},
        {"samples": "auto", "tolerance": 0.2},
    ],
    ids=str,
)
def test_every_way_to_predict_passes_the_mask_on(options):
    model = tagger()
    mean = [np.array(v) for v in model.trainable_variables]
    variances = [np.full(m.shape, 0.1) for m in mean]
    if "link" in options:  # needs the exact Gaussian of the last layer alone
        variances[:-2] = [None] * len(variances[:-2])
        options = {"linearized": True, **options}
    posterior = Gaussian(mean, variances)
    if options.get("link") != "probit":
        options = {"samples": 4, **options}
    options = predict_arguments(**options)
    p = bdl.predict(model, TOKENS, posterior, verbose=0, **options)
    np.testing.assert_array_equal(p.mask, KEPT)


@pytest.mark.parametrize(
    "compiled", [{"run_eagerly": True}, {"jit_compile": True}]
)
def test_mask_does_not_depend_on_how_the_model_is_compiled(compiled):
    model = tagger(**compiled)
    p = bdl.predict(model, TOKENS, ensemble(model), batch_size=8, verbose=0)
    np.testing.assert_array_equal(p.mask, KEPT)


def test_each_output_has_the_mask_and_the_ignored_class_of_its_own():
    tokens = keras.Input((STEPS,), dtype="int32")
    numbers = keras.Input((2,))
    h = keras.layers.Embedding(9, 4, mask_zero=True)(tokens)
    pooled = keras.layers.GlobalAveragePooling1D()(h)
    outputs = {
        "noisy": keras.layers.Dense(1)(h),
        "plain": keras.layers.Dense(CLASSES)(numbers),
        "pooled": keras.layers.Dense(CLASSES)(pooled),
        "tags": keras.layers.Dense(CLASSES)(h),
    }
    model = keras.Model([tokens, numbers], outputs)
    ignoring = keras.losses.SparseCategoricalCrossentropy(True, ignore_class=2)
    losses = dict.fromkeys(outputs, cross_entropy())
    model.compile(loss={**losses, "noisy": "mse", "tags": ignoring})
    x = [TOKENS, RNG.normal(size=(N, 2))]
    p = bdl.predict(model, x, ensemble(model), verbose=0)
    assert p["plain"].mask is p["pooled"].mask is None
    np.testing.assert_array_equal(p["noisy"].mask, KEPT[..., None])
    np.testing.assert_array_equal(p["tags"].mask, KEPT)
    assert (p["tags"].ignore_class, p["plain"].ignore_class) == (2, None)
    y = RNG.normal(size=(N, STEPS))
    error = (p["noisy"].mean[..., 0] - y)[KEPT]
    report = bdl.evaluate(p["noisy"].rescaled(2.0), 2.0 * y)
    np.testing.assert_allclose(report.rmse, 2 * np.sqrt(np.mean(error**2)))


def test_noise_that_the_network_predicts_is_masked_like_its_mean():
    model = tagger(
        keras.Input((STEPS, 2)),
        keras.layers.Masking(),
        keras.layers.Dense(2),
        loss=bdl.likelihoods.Gaussian(),
    )
    for options in ({}, {"linearized": True}):
        mean = [np.array(v) for v in model.trainable_variables]
        posterior = Gaussian(mean, [np.full(m.shape, 0.01) for m in mean])
        options = predict_arguments(samples=3, **options)
        p = bdl.predict(model, VECTORS, posterior, verbose=0, **options)
        assert p.mean.shape == (N, STEPS, 1)
        np.testing.assert_array_equal(p.mask[..., 0], KEPT)


def test_class_that_the_loss_ignores_does_not_count():
    loss = keras.losses.SparseCategoricalCrossentropy(True, ignore_class=-1)
    model = tagger(loss=loss)
    y = np.where(RNG.uniform(size=Y.shape) < 0.3, -1, Y)
    expected = model.evaluate(TOKENS, y, batch_size=N, verbose=0)
    data = tf.data.Dataset.from_tensor_slices((TOKENS, y)).batch(8)
    p = bdl.predict(model, data, verbose=0)
    report = bdl.evaluate(p)
    assert report.num_inputs == (KEPT & (y != -1)).sum()
    np.testing.assert_allclose(report.nll, expected, rtol=1e-5)
    scores = SegmentationScores()
    bdl.predict(model, data, on_batch=scores.add, verbose=0)
    np.testing.assert_allclose(scores.report().nll, expected, rtol=1e-5)
    assert scores.report().num_pixels == report.num_inputs


def test_predictive_model_passes_the_mask_on(tmp_path):
    model = tagger()
    posterior = ensemble(model)
    mean = bdl.predict(model, TOKENS, posterior, verbose=0).mean
    predictive = bdl.PosteriorPredictive(model, posterior, outputs="mean")
    predictive.save(tmp_path / "predictive.keras")
    inside = keras.Input((STEPS,), dtype="int32")
    for served in (
        predictive,
        keras.saving.load_model(tmp_path / "predictive.keras"),
        keras.Model(inside, predictive(inside)),
    ):
        served.compile(loss="sparse_categorical_crossentropy")
        found = served.evaluate(TOKENS, Y, batch_size=N, verbose=0)
        np.testing.assert_allclose(found, nll(mean), rtol=1e-5)
