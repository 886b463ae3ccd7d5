"""What collectors will hold, before they hold it."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import _memory as memory

# A kernel and a bias, in float32.
WEIGHTS = 4 * 3 + 3

COLLECTORS = {
    # The mean and the squares in float64, and two columns.
    "SWAG": (lambda: bdl.SWAG(0, rank=2), WEIGHTS * (16 + 2 * 4), "`rank`"),
    "SWAG, half precision": (
        lambda: bdl.SWAG(0, rank=2, deviation_dtype="float16"),
        WEIGHTS * (16 + 2 * 2),
        "`rank`",
    ),
    "SWA": (lambda: bdl.SWA(0), WEIGHTS * 8, "`trainable=False`"),
    "samples": (
        lambda: bdl.callbacks.SampleCollector(1, unit="epoch"),
        3 * WEIGHTS * 4,
        "`directory`",
    ),
    "latest samples": (
        lambda: bdl.callbacks.SampleCollector(1, unit="epoch", max_samples=2),
        2 * WEIGHTS * 4,
        "`directory`",
    ),
}


def fit(callback, inputs=True):
    inputs = [keras.Input((4,))] if inputs else []
    model = keras.Sequential([*inputs, keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    x, y = np.zeros((8, 4), "float32"), np.zeros((8, 3), "float32")
    model.fit(x, y, batch_size=4, epochs=3, verbose=0, callbacks=[callback])
    return callback


@pytest.mark.parametrize("name", COLLECTORS)
def test_collector_needs_the_bytes_that_it_checks(name, monkeypatch):
    make, nbytes, advice = COLLECTORS[name]
    monkeypatch.setattr(memory, "free_bytes", lambda: nbytes - 1)
    with pytest.raises(ValueError, match=f"{advice}.*{nbytes} bytes needed"):
        fit(make())
    monkeypatch.setattr(memory, "free_bytes", lambda: nbytes)
    fit(make())


@pytest.mark.parametrize("name", ["SWAG", "samples"])
def test_collector_checks_a_model_that_fit_builds(name, monkeypatch):
    make, nbytes, _ = COLLECTORS[name]
    monkeypatch.setattr(memory, "free_bytes", lambda: nbytes - 1)
    with pytest.raises(ValueError, match=f"{nbytes} bytes needed"):
        fit(make(), inputs=False)


def test_samples_in_files_need_no_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "free_bytes", lambda: 0)
    directory = str(tmp_path)
    fit(bdl.callbacks.SampleCollector(1, unit="epoch", directory=directory))


def test_a_gibibyte_is_announced(capsys):
    memory.check_memory("It", 2**30 - 1, "")
    assert not capsys.readouterr().out
    memory.check_memory("It", 3 * 2**29, "")
    assert capsys.readouterr().out == "It will take 1.5 GiB of memory\n"
