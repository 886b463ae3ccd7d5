"""Raw inputs of models that preprocess their data, such as KerasHub tasks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import assert_equal

hub = pytest.importorskip(
    "keras_hub", reason='python -m pip install -e ".[hub]"'
)

WORDS = ["the", "cat", "sat", "dog", "ran", "home"]
TEXTS = ["the cat sat", "dog ran home", "the dog sat the", "cat"]
Y = np.array([0, 1, 2, 1])


def classifier():
    """A BERT that takes strings, with random weights."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    keras.utils.set_random_seed(1)
    backbone = hub.models.BertBackbone(
        vocabulary_size=len(vocabulary),
        intermediate_dim=8,
        max_sequence_length=6,
        num_layers=1,
        num_heads=2,
        hidden_dim=4,
    )
    tokenizer = hub.models.BertTokenizer(vocabulary=vocabulary)
    task = hub.models.BertTextClassifier(
        backbone=backbone,
        num_classes=3,
        preprocessor=hub.models.BertTextClassifierPreprocessor(
            tokenizer, sequence_length=6
        ),
    )
    rng = np.random.default_rng(0)  # texts get different classes
    for v in task.trainable_variables:
        v.assign(rng.normal(scale=3.0, size=v.shape))
    return task


class Pairs(keras.utils.PyDataset):
    num_batches = 2

    def __getitem__(self, index):
        rows = slice(2 * index, 2 * index + 2)
        return np.array(TEXTS[rows]), Y[rows]


def test_predict_takes_what_the_task_takes():
    task = classifier()
    expected = keras.ops.log_softmax(task.predict(TEXTS, verbose=0))
    assert np.std(expected, axis=0).max() > 0.5
    batched = tf.data.Dataset.from_tensor_slices((TEXTS, Y)).batch(2)
    ready = task.preprocessor(TEXTS)
    for x in (TEXTS, np.array(TEXTS), batched, Pairs(), ready):
        p = bdl.predict(task, x, verbose=0)
        np.testing.assert_allclose(p.log_mean, expected, atol=1e-4)
    assert_equal([bdl.predict(task, batched, verbose=0).y], [Y])
    generator = (TEXTS[i : i + 2] for i in (0, 2))
    p = bdl.predict(task, map(np.array, generator), verbose=0)
    np.testing.assert_allclose(p.log_mean, expected, atol=1e-4)
    # Without a preprocessor, inputs are taken as they are.
    task.preprocessor = None
    p = bdl.predict(task, ready, verbose=0)
    np.testing.assert_allclose(p.log_mean, expected, atol=1e-4)


def test_laplace_and_served_model_take_raw_texts():
    task = classifier()
    ready = task.preprocessor(TEXTS)
    options = {"batch_size": 2, "refinements": 0, "verbose": 0}
    posterior = bdl.fit_laplace(task, (TEXTS, Y), **options)
    tokens = bdl.fit_laplace(task, (ready, Y), **options)
    for found, expected in zip(posterior.mean(), tokens.mean(), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(
        posterior.log_marginal_likelihood,
        tokens.log_marginal_likelihood,
        rtol=1e-5,
    )

    p = bdl.predict(task, TEXTS, posterior, samples=3, verbose=0)
    served = bdl.PosteriorPredictive(task, posterior, samples=3, outputs="mean")
    np.testing.assert_allclose(served(ready), p.mean, atol=1e-5)
    np.testing.assert_allclose(
        served.predict(TEXTS, verbose=0), p.mean, atol=1e-5
    )
    served.compile("sgd", "sparse_categorical_crossentropy")
    nll = -np.log(p.mean[np.arange(4), Y]).mean()
    for data in ((np.array(TEXTS), Y), (ready, Y), (Pairs(),)):
        np.testing.assert_allclose(
            served.evaluate(*data, verbose=0), nll, rtol=1e-4
        )


def test_converted_copy_says_that_it_has_no_preprocessor():
    task = classifier()
    with pytest.warns(UserWarning, match="leaves out the preprocessor"):
        copy = bdl.convert(task, "mean_field", verbose=0)
    p = bdl.predict(
        copy,
        task.preprocessor(TEXTS),
        options=bdl.prediction.PredictOptions(
            task="classification", from_logits=True
        ),
        samples=2,
        verbose=0,
    )
    assert p.mean.shape == (4, 3)
