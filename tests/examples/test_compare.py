import json
import types
import warnings

import numpy as np
import pytest
import tensorflow_datasets as tfds

import keras_bdl as bdl
from tests.examples.conftest import EXAMPLES


@pytest.fixture
def comparison(monkeypatch):
    """The modules of the comparison."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import comparison.methods
    import comparison.scores
    import comparison.task

    return comparison


def rows(images):
    """The images as a set."""
    return {image.tobytes() for image in images}


def test_compare_prints_the_table_and_writes_the_pictures(run, tmp_path):
    # A new user runs this script first.
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        # The chains of the smoke run are too short to mix.
        warnings.filterwarnings("ignore", ".*a chain that still drifts")
        printed = run("compare.py", "--out", tmp_path)
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert len(scores) == 20
    table = (tmp_path / "table.txt").read_text()
    assert table in printed
    assert max(map(len, table.splitlines())) <= 80
    lines = table.splitlines()[1:21]
    for line, method in zip(lines, scores, strict=True):
        assert line.startswith(method)
    assert {p.stem for p in tmp_path.glob("*.png")} == {"comparison", "shift"}


def test_every_digit_is_in_exactly_one_part(comparison):
    source = comparison.task.Source("digits", None, 5, 200, 100)
    (task,) = source.tasks(1)
    parts = [task.train[0], task.validation[0], task.test[0], task.unknown]
    assert [len(part) for part in parts] == [200, 100, 601, 896]
    # Five pairs of digits of scikit-learn have the same pixels.
    assert (
        sum(map(len, map(rows, parts))) <= len(rows(np.concatenate(parts))) + 5
    )
    assert set(task.test[1]) == set(range(5))


def test_temperature_scaling_of_a_network_without_errors_is_the_network(
    comparison, monkeypatch
):
    def predict(x):
        return bdl.prediction.ClassificationPrediction(np.log(x))

    monkeypatch.setattr(comparison.methods, "sgd", lambda training: predict)
    x = np.array([[0.9, 0.1], [0.2, 0.8]], "float32")
    for y, same in (([0, 1], True), ([0, 0], False)):
        task = types.SimpleNamespace(validation=(x, np.array(y)))
        training = types.SimpleNamespace(task=task)
        scaled = comparison.methods.temperature_scaling(training)
        assert np.array_equal(scaled(x).mean, predict(x).mean) == same


def test_images_of_tensorflow_datasets_keep_their_test_part(comparison):
    with tfds.testing.mock_data(num_examples=40):
        source = comparison.task.Source("mnist", None, 8, 10, 5)
        first, second = source.tasks(2)
    assert [len(part[1]) for part in (first.train, first.validation)] == [10, 5]
    assert len(first.test[1]) + len(first.unknown) == 40
    assert max(first.test[1]) < 8
    assert rows(first.test[0]) == rows(second.test[0])
    assert rows(first.train[0]) != rows(second.train[0])


def test_table_has_means_and_errors_and_the_best_under_shift_first(comparison):
    def scores(shift):
        of_shift = {f"shift {s}": shift for s in (1, 3, 5)}
        return {
            "accuracy": 0.9,
            "nll": shift / 10,
            "unknown": 0.8,
            "seconds": 3.0,
            **of_shift,
        }

    runs = [{"a": scores(1.0), "b": scores(0.5)}]
    runs.append({"a": scores(1.2), "b": scores(0.5)})
    collected = comparison.scores.over_seeds(runs)
    _, first, second = comparison.scores.table(collected).splitlines()
    shift = ["0.50(0)"] * 3
    assert first.split() == [
        "b",
        "0.900(0)",
        "0.050(0)",
        *shift,
        "0.800(0)",
        "3",
    ]
    # The mean of 1.0 and 1.2 has a standard error of 0.1.
    assert second.split()[2:4] == ["0.110(10)", "1.10(10)"]
