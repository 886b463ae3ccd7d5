import functools

import keras
import pytest
from keras import losses

from keras_bdl.prediction._outputs import Likelihood
from keras_bdl.prediction._outputs import per_output


class OwnCrossentropy(losses.SparseCategoricalCrossentropy):
    """A loss of the user's own."""


@pytest.mark.parametrize(
    "loss, expected",
    [
        ("sparse_categorical_crossentropy", ("classification", False)),
        ("CategoricalCrossentropy", ("classification", False)),
        ("crossentropy", ("classification", False)),
        ("binary_crossentropy", ("binary", False)),
        ("mse", ("regression", False)),
        ("huber", ("regression", False)),
        (losses.categorical_crossentropy, ("classification", False)),
        (losses.CategoricalFocalCrossentropy(), ("classification", False)),
        (OwnCrossentropy(from_logits=True), ("classification", True)),
        (losses.BinaryCrossentropy(from_logits=True), ("binary", True)),
        (losses.BinaryFocalCrossentropy(), ("binary", False)),
        (losses.MeanAbsoluteError(), ("regression", False)),
        (losses.Huber(delta=2.0), ("regression", False)),
        (
            functools.partial(losses.binary_crossentropy, from_logits=True),
            ("binary", True),
        ),
    ],
)
def test_likelihood_follows_from_the_loss(loss, expected):
    assert Likelihood.resolve(None, None, loss) == Likelihood(*expected)


def test_arguments_of_the_user_override_the_loss():
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    told = Likelihood.resolve("classification", False, loss)
    assert told == Likelihood("classification", False)
    assert Likelihood.resolve("binary", None, loss) == Likelihood(
        "binary", True
    )
    assert Likelihood.resolve("regression", None, loss).task == "regression"


@pytest.mark.parametrize(
    "task, from_logits, loss, match",
    [
        (None, None, None, "compiled loss does not say"),
        (None, None, losses.Dice(), 'Write `task="classification"'),
        (None, None, lambda y, p: p, "compiled loss does not say"),
        ("classification", None, None, "`from_logits` must be given"),
        ("classification", None, "mse", "`from_logits` must be given"),
        ("classify", None, None, "`task` must be one of"),
        ("binary", "no", None, "`from_logits` must be one of"),
        (
            None,
            None,
            losses.CategoricalCrossentropy(axis=1),
            "classes on the last axis",
        ),
    ],
)
def test_unknown_likelihood_is_an_error_that_names_the_arguments(
    task, from_logits, loss, match
):
    with pytest.raises(ValueError, match=match):
        Likelihood.resolve(task, from_logits, loss)


OUTPUTS = {"b": 1, "a": [2, 3]}  # flattened: a[0], a[1], b


@pytest.mark.parametrize(
    "value, outputs, names, expected",
    [
        ("v", OUTPUTS, None, ["v", "v", "v"]),
        ({"a": ["p", "q"], "b": "r"}, OUTPUTS, None, ["p", "q", "r"]),
        ({"b": "r"}, OUTPUTS, None, [None, None, "r"]),
        (["p", "q"], (1, 2), None, ["p", "q"]),
        (["p"], 1, ["out"], ["p"]),
        ({"q": "r"}, [1, 2], ["p", "q"], [None, "r"]),
        ({"out": "r"}, 1, ["out"], ["r"]),
    ],
)
def test_an_argument_is_matched_to_the_outputs(value, outputs, names, expected):
    assert per_output("v", value, outputs, names=names) == expected
    flat = keras.tree.flatten(outputs)
    assert len(expected) == len(flat)


@pytest.mark.parametrize("value", [{"c": 1}, ["p", "q"], ["p"] * 4])
def test_an_argument_for_other_outputs_is_refused(value):
    with pytest.raises(ValueError, match="`task` must be one value for all"):
        per_output("task", value, OUTPUTS)
