import gzip
import importlib
import runpy
import sys

import numpy as np
import pytest

import keras_bdl as bdl
from tests.examples.conftest import EXAMPLES

RNG = np.random.default_rng(0)


@pytest.fixture
def panel(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    names = ("runs", "settings", "tasks")
    return {n: importlib.import_module(f"panel.{n}") for n in names}


def prepare(monkeypatch, *args):
    """Runs the script that prepares data."""
    script = EXAMPLES / "panel" / "prepare.py"
    monkeypatch.setattr(sys, "argv", list(map(str, (script, *args))))
    runpy.run_path(str(script), run_name="__main__")


def test_runs_are_kept_and_the_table_shows_the_regret_of_the_default(
    panel, run, tmp_path, monkeypatch
):
    grid = [{}, {"learning_rate": 1e-4}]
    monkeypatch.setitem(panel["settings"].GRIDS, "Adam", grid)
    losses = iter([1.0, 0.75, 2.0, 2.5])
    trained = []

    def scores(task, predict, seconds):
        trained.append(task.steps)
        return {"nll": next(losses), "seconds": seconds}

    monkeypatch.setattr(panel["runs"], "scores", scores)
    tasks = "digits", "series, LSTM"
    args = "--tasks", *tasks, "--methods", "Adam", "--out", tmp_path
    run("defaults.py", *args)
    assert len(trained) == 4
    rows = (tmp_path / "table.md").read_text().splitlines()[2:]
    assert rows == [
        "| Adam | digits | 1.000 | 0.250 | learning_rate 0.0001 "
        "| defaults | 0.250 |",
        "| Adam | series, LSTM | 2.000 | 0.000 | defaults "
        "| learning_rate 0.0001 | 0.500 |",
    ]
    run("defaults.py", *args)  # reads the files
    assert len(trained) == 4


@pytest.mark.filterwarnings("ignore:The training diverges")
def test_a_run_that_diverges_counts_3_nats_and_is_never_the_best(
    panel, run, tmp_path, monkeypatch
):
    # "digits" has more test images than a short run.
    grid = [{"learning_rate": 1e38}, {}]
    monkeypatch.setitem(panel["settings"].GRIDS, "SGD", grid)
    args = "--tasks", "digits", "--methods", "SGD", "--smoke"
    run("defaults.py", *args, "--out", tmp_path)
    (row,) = (tmp_path / "table.md").read_text().splitlines()[2:]
    assert row == "| SGD | digits | inf | 3.000 | defaults |"


def test_leaderboard_shows_all_scores_of_the_defaults(run, tmp_path):
    args = ("--task", "digits", "--seeds", 1, "--methods", "IVON")
    printed = run("leaderboard.py", *args, "--out", tmp_path)
    head, _, *rows = (tmp_path / "digits.md").read_text().splitlines()
    assert "| NLL | ECE | turned: NLL | noise: NLL | time / SGD |" in head
    names = [row.split(" | ")[0] for row in rows]
    assert names == ["| SGD", "| IVON"]
    assert all(row in printed for row in rows)
    assert rows[0].endswith("| 1.0 |")


def test_leaderboard_counts_runs_that_diverge(
    panel, run, tmp_path, monkeypatch
):
    nlls = iter([0.5, 0.7, float("inf"), 0.3])

    def scores(*_):
        nll = next(nlls)
        more = {"accuracy": 0.9} if np.isfinite(nll) else {}
        return {**more, "nll": nll, "seconds": 2.0}

    monkeypatch.setattr(panel["runs"], "run", scores)
    args = ("--task", "digits", "--seeds", 2, "--methods", "IVON")
    run("leaderboard.py", *args, "--out", tmp_path)
    assert (tmp_path / "digits.md").read_text().splitlines() == [
        "| method | accuracy | NLL | time / SGD |",
        "| --- | --- | --- | --- |",
        "| SGD | 0.900 ± 0.000 | 0.600 ± 0.100 | 1.0 |",
        "| IVON | 0.900 (1 of 2 without) | 0.300 (1 of 2 without) | 1.0 |",
    ]


def test_each_network_of_the_panel_trains_and_is_scored(panel):
    tasks, runs = panel["tasks"], panel["runs"]
    x = RNG.normal(size=(20, 8, 8, 1)).astype("float32")
    y = RNG.integers(0, 10, 20)
    images = tasks.PanelTask(
        (x, y), (x, y), lambda **options: tasks.residual(
            (8, 8, 1), 2, 10, **options
        ), 1, 20, shifted=tasks.shifts(x), unknown=x,
    )  # fmt: skip
    chosen = {
        "residual": images,
        "recurrent": tasks.TASKS["series, LSTM"](0, None),
        "attention": tasks.TASKS["text, attention"](0, None),
    }
    for name, task in chosen.items():
        task = tasks.shortened(task, 20)
        training = runs.PanelTraining(task, seed=0)
        found = runs.scores(task, runs.PANEL_METHODS["IVON"](training), 1.0)
        assert all(map(np.isfinite, found.values())), name
        shifted = {"turned nll", "noise nll", "unknown, entropy"}
        assert shifted <= found.keys() or name != "residual"


def test_files_of_images_and_tables_become_folders_that_the_loaders_read(
    panel, tmp_path, monkeypatch
):
    files, folder = tmp_path / "files", tmp_path / "prepared"
    files.mkdir()
    images = RNG.integers(0, 256, (12, 28, 28, 1)).astype("uint8")
    labels = RNG.integers(0, 10, 12).astype("uint8")
    for prefix, part in (("train", slice(8)), ("t10k", slice(8, None))):
        for kind, array, start in (
            ("images-idx3", images, 16),
            ("labels-idx1", labels, 8),
        ):
            file = files / f"{prefix}-{kind}-ubyte.gz"
            content = bytes(start) + array[part].tobytes()
            file.write_bytes(gzip.compress(content))
    x, y = RNG.normal(size=(10, 3)), RNG.normal(size=10)
    train = np.arange(10) < np.array([[7], [5]])
    packed = np.packbits(train, axis=1)
    np.savez(files / "some-table.npz", x=x, y=y, train=packed)
    given = ("--idx", files, "--tables", files, "--data-dir", folder)
    prepare(monkeypatch, *given)

    data = bdl.datasets.load(
        "fashion_mnist", ood=(), validation_size=0, augment=False,
        data_dir=str(folder),
    )  # fmt: skip
    found = np.concatenate([batch for batch, _ in data.test])
    # The loader standardises, and shuffles nothing.
    a, b = ((z - z.mean()) / z.std() for z in (found, np.float32(images[8:])))
    order = np.lexsort(a.reshape(4, -1).T), np.lexsort(b.reshape(4, -1).T)
    np.testing.assert_allclose(a[order[0]], b[order[1]], atol=1e-4)

    table = panel["tasks"].table(1, folder, name="uci_some_table", steps=1)
    mean, stddev = x[:5].mean(0), x[:5].std(0)
    for part, rows in ((table.train, train[1]), (table.test, ~train[1])):
        standard = np.sort((x[rows] - mean) / stddev, axis=0)
        np.testing.assert_allclose(np.sort(part[0], 0), standard, rtol=1e-5)
