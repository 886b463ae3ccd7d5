"""A forgotten `from_logits=True` gives a warning in `fit`."""

import warnings

import keras
import numpy as np
import pytest

import keras_bdl as bdl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype("float32")
CLASSES = np.arange(24) % 3
SPARSE = keras.losses.SparseCategoricalCrossentropy
BINARY = keras.losses.BinaryCrossentropy
# Loss, activation, number of outputs, whether the outputs are wrong.
CASES = [
    ("sparse_categorical_crossentropy", None, 3, True),
    ("sparse_categorical_crossentropy", "softmax", 3, False),
    (SPARSE(from_logits=True), None, 3, False),
    (BINARY(), None, 1, True),
    (BINARY(), "sigmoid", 1, False),
    ("mse", None, 1, False),
]


def warned(loss, activation, outputs, y, **options):
    layer = keras.layers.Dense(
        outputs, activation=activation, kernel_initializer="ones"
    )
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile(loss=loss, **options)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(10 * X, y, batch_size=8, epochs=2, verbose=0)
    text = "expects probabilities, but the model returns values outside"
    return sum(text in str(one.message) for one in found)


@pytest.mark.parametrize(("loss", "activation", "outputs", "wrong"), CASES)
def test_logits_for_probabilities_warn_once(loss, activation, outputs, wrong):
    y = CLASSES if outputs == 3 else CLASSES[:, None] > 1
    assert warned(loss, activation, outputs, y) == wrong


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": bdl.VOGN(1e-3)},
        {"objective": bdl.objectives.TaylorVI("scalar")},
        {"jit_compile": True},
        {"train_samples": 2},
    ],
    ids=["VOGN", "TaylorVI", "XLA", "two samples"],
)
def test_every_training_step_sees_the_logits(options):
    assert warned(
        "sparse_categorical_crossentropy", None, 3, CLASSES, **options
    )


def test_a_step_that_was_traced_before_fit_sees_the_logits():
    layer = keras.layers.Dense(3, kernel_initializer="ones")
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile("sgd", "sparse_categorical_crossentropy")
    # A `CallbackList` of the user takes no callback of ours.
    theirs = keras.callbacks.CallbackList(model=model, add_history=True)
    model.fit(10 * X, CLASSES, verbose=0, callbacks=theirs)
    with pytest.warns(UserWarning, match="outside \\[0, 1\\]"):
        model.fit(10 * X, CLASSES, verbose=0)
