"""Errors of the papers' program on damaged files and wrong options."""

import dataclasses
import errno
import re
import sys
import types
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.posteriors import Ensemble

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "papers"))
sys.path.append(str(EXAMPLES))

import run  # noqa: E402
from files import kept  # noqa: E402
from outcome import Outcome  # noqa: E402
from session import Session  # noqa: E402
from show import gradient_noise  # noqa: E402
from show import regression  # noqa: E402
from trained import Trained  # noqa: E402


@pytest.fixture
def trained(storage):
    known = types.SimpleNamespace(epochs=1)
    one = Trained(None, None, "SGD", 0, known)
    one.__dict__["folder"] = storage
    one.__dict__["network"] = lambda: None
    return one


@pytest.mark.parametrize(
    ("name", "content", "used"),
    [
        ("history.json", b'{"loss": [1.0', lambda one: one.history),
        ("history.json", b"", lambda one: one.history),
        ("weights.npz", None, lambda one: one.model),
        ("weights.npz", b"no archive", lambda one: one.model),
        ("SWAG.bdl", None, lambda one: one.posterior("SWAG")),
        ("SWAG.bdl", b"no archive", lambda one: one.posterior("SWAG")),
    ],
)
def test_error_names_a_damaged_file_of_a_training(trained, name, content, used):
    path = trained.folder / name
    if content is not None:
        path.write_text(content.decode())
    with pytest.raises(SystemExit) as error:
        used(trained)
    assert str(error.value).startswith(
        f"{path} is missing, damaged or of another version: delete "
        f"{trained.folder}, and the same command makes it again."
    )


def test_error_says_that_weights_are_of_another_version(trained):
    def set_weights(weights):
        raise ValueError("Layer expected 2 variables, received 1")

    model = types.SimpleNamespace(set_weights=set_weights)
    trained.__dict__["network"] = lambda: model
    with (trained.folder / "weights.npz").replaced() as file:
        np.savez(file, np.zeros(3))
    with pytest.raises(SystemExit, match="or of another version: delete"):
        _ = trained.model


def test_error_names_a_damaged_checkpoint(trained):
    path = trained.folder / "latest.bdl"
    path.write_text("half of a checkpoi")
    with pytest.raises(SystemExit, match=f"delete {path}, and the same"):
        trained._fit(None, [])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["swag"], "there is no such recipe, --list prints all. .*'swag'"),
        (["all", "vogn/table9"], "no such recipe.* Received: 'vogn/table9'"),
        (
            ["all", "--steps-per-execution", "0"],
            "--steps-per-execution must be at least 1. Received: 0",
        ),
        (["all", "--smoke", "--scale", "paper"], "not allowed with argument"),
        (
            ["vogn/figure17", "vogn/figure1", "--scale", "medium"],
            "--scale medium has the recipes atmc/table1, .*, vogn/figure17. "
            "Received: 'vogn/figure1'",
        ),
    ],
)
def test_wrong_options_end_in_one_sentence(args, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", *args])
    with pytest.raises(SystemExit):
        run.main()
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(said, last), last


@pytest.mark.parametrize("scale", ["small", "medium"])
def test_all_and_a_name_run_every_recipe_once(scale, monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(run, "run", lambda chosen, *_: found.extend(chosen))
    args = ["vogn/table1", "all", "--scale", scale, "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["run.py", *args])
    run.main()
    assert found == run.recipes.names(scale)
    assert (len(found) == len(run.recipes.names())) == (scale == "small")


def test_list_names_the_recipes_of_a_scale(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--list", "--scale", "medium"])
    run.main()
    found = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert found == run.recipes.names("medium") and "vogn/table1" in found


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_error_names_a_file_that_cannot_be_written(
    number, monkeypatch, tmp_path
):
    def fails(*_):
        raise OSError(number, "The reason", "weights.npz")

    monkeypatch.setattr(run, "run", fails)
    monkeypatch.setattr(sys, "argv", ["run.py", "all", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="Files cannot be written: .*weights"):
        run.main()


def test_bfloat16_holds_for_all_recipes_of_a_command(monkeypatch, tmp_path):
    policies = []

    def results(*_):
        policies.append(keras.config.dtype_policy().name)
        return {"a cell": []}

    shown = types.SimpleNamespace(show=lambda *_: "A table")
    monkeypatch.setattr(run, "_results", results)
    monkeypatch.setattr(run, "_write", lambda *_: None)
    monkeypatch.setattr(run.importlib, "import_module", lambda _: shown)
    args = ["vogn/table1", "swag/table1", "--bfloat16", "--smoke"]
    monkeypatch.setattr(sys, "argv", ["run.py", *args, "--out", str(tmp_path)])
    run.main()
    assert policies == ["mixed_bfloat16"] * 2
    assert keras.config.dtype_policy().name == "float32"


def test_every_split_and_method_of_a_regression_has_new_networks(
    monkeypatch, tmp_path
):
    used = []

    def report(name, nets, split):
        used.append(nets)
        return {"nll": 1.0, "rmse": 1.0}

    monkeypatch.setattr(regression, "_report", report)
    recipe = run.recipes.load("radial/table2", "smoke")
    session = Session("smoke", tmp_path, None, seeds=2)
    outcome = Outcome(recipe, session, {}, tmp_path)
    regression.show(outcome, recipe.show["regression"])
    assert len(set(map(id, used))) == len(used) == 6
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:  # what was computed in another precision is another result
        regression.show(outcome, recipe.show["regression"])
    finally:
        keras.config.set_dtype_policy("float32")
    assert len(used) == 12


def test_kept_file_is_made_once(storage):
    made = []

    def make():
        made.append(1)
        return {"minimum": float("-inf"), "maximum": 2.0}

    path = storage / "a folder" / "hessian.json"
    first = kept(path, make)
    assert path.exists()
    assert first == kept(path, make) == make() and len(made) == 2


def test_files_of_a_training_and_its_figures_lie_in_a_bucket(
    storage, monkeypatch
):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    swag = types.SimpleNamespace(posterior=Ensemble([model.get_weights()]))
    strategy = tf.distribute.get_strategy()
    session = Session("smoke", storage / "runs", strategy)
    (storage / "runs").mkdir(parents=True)
    known = types.SimpleNamespace(epochs=1, as_json=lambda **_: {"epochs": 1})
    one = Trained(session, None, "SGD", 0, known)
    one.__dict__["folder"] = storage / "runs"
    one.__dict__["network"] = lambda: keras.models.clone_model(model)
    training = types.SimpleNamespace(posterior=None)
    one._keep(training, model, {"SWAG": swag}, {"loss": [1.0]})
    assert one.history == {"loss": [1.0]}
    for read, written in zip(
        one.model.get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(read, written)
    assert len(one.posterior("SWAG")) == 1
    figure, _ = plt.subplots(figsize=(1, 1))
    outcome = Outcome(None, session, {}, storage)
    outcome.save(figure, "figure")
    with (storage / "figure.png").open_to_read() as file:
        assert file.read(4) == b"\x89PNG"
    with monkeypatch.context() as patch:
        patch.setattr(run, "run", lambda *_: None)
        arguments = ["run.py", "all", "--out", str(storage / "out")]
        patch.setattr(sys, "argv", arguments)
        run.main()
        assert (storage / "out").exists()
        patch.setattr(sys, "argv", ["run.py", "all", "--out", "s3://bucket"])
        with pytest.raises(SystemExit):
            run.main()


NOISE = dataclasses.fields(gradient_noise.bdl.extend.GradientNoiseReport)
NOISE = [field.name for field in NOISE]


def test_killed_measurement_of_noise_continues(monkeypatch, tmp_path):
    measured = []

    def noise(model, data, **_):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(model.weights)
        return gradient_noise.bdl.extend.GradientNoiseReport(
            **dict.fromkeys(NOISE, 1.0) | {"trace": model.weights}
        )

    class Iterates:
        def __len__(self):
            return 3

        def sample(self, place):
            return float(place)

    model = types.SimpleNamespace()
    model.set_weights = lambda weights: setattr(model, "weights", weights)
    trained = types.SimpleNamespace(
        folder=tmp_path,
        model=model,
        data=types.SimpleNamespace(statistics=None),
        posterior=lambda _: Iterates(),
        settings=types.SimpleNamespace(momentum=0.9),
        statistics_batch_size=8,
        loss=lambda: None,
    )
    monkeypatch.setattr(gradient_noise.bdl.diagnostics, "gradient_noise", noise)
    with pytest.raises(KeyboardInterrupt):
        gradient_noise._along(trained)
    measured.append(None)
    for _ in range(2):
        found = gradient_noise._along(trained)
    assert [one.trace for one in found] == [0.0, 1.0, 2.0]
    assert measured == [0.0, 1.0, None, 2.0]
