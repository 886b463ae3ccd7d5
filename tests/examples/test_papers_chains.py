"""Chains of the papers' recipes: their files, and averages of few samples."""

import dataclasses
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._saving._storage_path import StoragePath

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "papers"))
sys.path.append(str(EXAMPLES))

import methods  # noqa: E402
import networks  # noqa: E402
from arguments import BySamples  # noqa: E402
from files import write  # noqa: E402
from measures import Result  # noqa: E402
from outcome import Outcome  # noqa: E402
from recipe import Cell  # noqa: E402
from recipe import Recipe  # noqa: E402
from session import Session  # noqa: E402
from show import by_samples  # noqa: E402
from trained import Trained  # noqa: E402

CHAIN = Cell("atmc", "cifar10", "ResNet-56++", "ATMC, posterior predictive")


def small(cell, data, *args):
    """Returns a small network in place of that of a paper."""
    dense = keras.layers.Dense(4, "tanh"), keras.layers.Dense(data.classes)
    layers = [keras.Input(data.input_shape), keras.layers.Flatten(), *dense]
    return bdl.Sequential(layers)


@pytest.fixture
def session(monkeypatch, tmp_path):
    monkeypatch.setattr(networks, "make", small)
    return Session("smoke", tmp_path, tf.distribute.get_strategy())


def test_checkpoints_have_no_samples_and_one_file_has_all_at_the_end(
    session, monkeypatch
):
    states, removed = [], []
    get_state = bdl.callbacks.SampleCollector.get_state
    remove_folder = StoragePath.remove_folder

    def kept_state(collector):
        states.append(get_state(collector))
        return states[-1]

    def kept_names(folder):
        removed.extend(folder.names())
        remove_folder(folder)

    monkeypatch.setattr(bdl.callbacks.SampleCollector, "get_state", kept_state)
    monkeypatch.setattr(StoragePath, "remove_folder", kept_names)
    predictions, (one,) = session.predicted(CHAIN, 0)
    assert [Path(path).name for path in states[-1]["samples"]] == removed
    assert removed == ["sample_000000.bdl", "sample_000001.bdl"]
    assert not (one.folder / "samples").exists()
    assert len(one.posterior("samples")) == 2

    # The last average is the posterior predictive, the first one sample.
    one.model.set_weights(one.posterior("samples").sample(0))
    weights = one.model.get_weights()
    found = by_samples._along(Result(CHAIN, predictions, [one], ()))
    for before, after in zip(weights, one.model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    last = bdl.evaluate(predictions["test"])
    assert found[-1] == pytest.approx([last.accuracy, last.nll], rel=1e-4)
    x, y = one.data.sets["test"]
    alone = bdl.evaluate(one.predict(x, None), y)
    assert found[0] == pytest.approx([alone.accuracy, alone.nll], rel=1e-4)


def test_text_says_after_how_many_epochs_a_chain_has_an_accuracy(tmp_path):
    def result(cell, accuracies):
        folder = tmp_path / cell.method
        folder.mkdir()
        values = [[a, 1 - a] for a in accuracies]
        write(folder / "by_samples_test.json", str(values))
        if accuracies:
            (folder / "samples.bdl").touch()
        known = types.SimpleNamespace(burn_in_epochs=150, cycle_epochs=20)
        one = dataclasses.replace(Trained(None, cell, "ATMC", 0, known))
        one.__dict__["folder"] = folder
        one.__dict__["data"] = types.SimpleNamespace(sets={"test": None})
        found = Result(cell, {}, [one], ())
        found.__dict__["report"] = types.SimpleNamespace(accuracy=0.762)
        return found

    norm = dataclasses.replace(CHAIN, method="SGD + BatchNorm")
    again = dataclasses.replace(CHAIN, method="ATMC, one sample")
    accuracies = [0.70, 0.75, 0.755, 0.76, 0.7625, 0.77]
    results = {
        again: [result(again, accuracies)],
        CHAIN: [result(CHAIN, accuracies[:1])],
        norm: [result(norm, [])],
    }
    recipe = Recipe("atmc/table2", "A title", {}, (), (), "paper")
    outcome = Outcome(recipe, None, results, tmp_path)
    text = by_samples.show(outcome, BySamples("SGD + BatchNorm"))
    assert (
        "ATMC, cifar10, ResNet-56++ has the accuracy of SGD + BatchNorm, "
        "0.762, after 250 epochs: with 5 samples." in text
    )
    # Both cells have one chain.
    assert text.count("ATMC, cifar10, ResNet-56++ |") == len(accuracies)
    assert "| 170 | 1 | 0.7 | 0.3 |" in text
    assert (tmp_path / "by_samples.png").stat().st_size


def test_a_target_that_is_no_cell_ends_in_one_error(tmp_path):
    recipe = Recipe("atmc/table2", "A title", {}, (), (), "paper")
    outcome = Outcome(recipe, None, {}, tmp_path)
    with pytest.raises(SystemExit, match="`target` must be the method of a"):
        by_samples.show(outcome, BySamples("SGD"))


def test_words_for_an_accuracy_that_no_average_has():
    assert by_samples._when([170, 190], np.array([0.1, 0.2]), 0.3) == (
        "at no number of samples up to 2"
    )


def test_laplace_is_sampled_with_the_precision_of_the_best_samples(
    session, monkeypatch
):
    monkeypatch.setattr(methods, "PRECISIONS", np.array([0.3, 3.0, 30.0]))
    cell = Cell("swag", "cifar10", "VGG-16", "KFAC-Laplace")
    predictions, (one,) = session.predicted(cell, 0)
    posterior = methods._sampled_laplace(one)
    x, y = one.data.validation
    losses = {
        precision: bdl.evaluate(
            bdl.predict(
                one.model,
                x,
                posterior.with_prior_precision(precision),
                samples=one.settings.samples,
                seed=0,
                options=bdl.prediction.PredictOptions(
                    linearized=False, from_logits=True, task="classification"
                ),
                verbose=0,
            ),
            y,
        ).nll
        for precision in methods.PRECISIONS
    }
    best = min(losses, key=losses.get)
    assert posterior.prior_precision == pytest.approx(best)
    x, y = one.data.sets["test"]
    options = {"samples": one.settings.samples}
    sampled, linear = (
        one.predict(x, posterior, linearized=flag, **options)
        for flag in (False, None)
    )
    found = predictions["test"].log_mean
    np.testing.assert_allclose(found, sampled.log_mean, rtol=1e-4, atol=1e-5)
    assert np.abs(found - linear.log_mean).max() > 1e-2
