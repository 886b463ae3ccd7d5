"""The program that runs the papers' recipes, from training to report."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.processes import Command

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
sys.path.insert(0, str(PAPERS))

import run as program  # noqa: E402

ENV = {**os.environ, "MPLBACKEND": "Agg"}
# A recipe of two trainings.
ONE = "radial/figure11"


def command(*args):
    return [sys.executable, str(PAPERS / "run.py"), *map(str, args)]


def start(*args):
    """Starts the program as its users do, and waits for its end."""
    return subprocess.run(
        command(*args), capture_output=True, text=True, env=ENV
    )


@pytest.fixture
def run(monkeypatch):
    """Runs the program in this process, which has imported TensorFlow."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, args)])
        program.main()

    return run


def test_variables_of_a_tpu_are_set_and_checked(run, monkeypatch, tmp_path):
    variables = program.environment.LIBRARY, program.environment.C_API
    for name in variables:
        monkeypatch.setenv(name, "")  # so that both are removed in the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(program.environment, "IMAGE", Path(__file__))
    monkeypatch.setattr(program, "run", lambda *_: None)
    monkeypatch.setenv("TPU_LOAD_LIBRARY", "0")
    run(ONE, "--out", tmp_path)  # on no TPU
    assert not os.environ.keys() & {*variables}
    with pytest.raises(SystemExit, match="TPU_LOAD_LIBRARY=0. is for pods"):
        run(ONE, "--out", tmp_path, "--strategy", "tpu")
    monkeypatch.delenv("TPU_LOAD_LIBRARY")
    run(ONE, "--out", tmp_path, "--strategy", "tpu")
    assert [os.environ[name] for name in variables] == [__file__, "true"]


def test_pod_is_refused_in_one_sentence(run, monkeypatch, tmp_path):
    monkeypatch.setattr(program.environment, "num_hosts", lambda _: 4)
    with pytest.raises(SystemExit, match="one host.*Received: a TPU of 4 "):
        run(ONE, "--out", tmp_path)


@pytest.fixture(scope="module")
def names():
    listed = start("--list")
    assert listed.returncode == 0, listed.stderr
    return [line.split()[0] for line in listed.stdout.splitlines()]


def predictions(folder):
    """Returns all predictions of a run, by file."""
    found = {}
    for path in sorted((folder / "smoke" / "runs").rglob("*.npz")):
        with np.load(path) as arrays:
            name = str(path.relative_to(folder))
            found |= {f"{name} {key}": arrays[key] for key in arrays}
    return found


def test_every_published_table_and_figure_has_a_recipe(names):
    import tomllib

    content = tomllib.loads((PAPERS / "published.toml").read_text())
    assert set(names) == {name for name in content if "/" in name}


# A network after one epoch predicts best with a posterior without width.
@pytest.mark.filterwarnings("ignore:The best prior precision is at the end")
def test_every_recipe_passes_in_smoke_and_writes_its_report(
    names, run, tmp_path
):
    # `test_continual_learning_prints_its_table_and_draws_the_tasks` trains with
    # a head for each task.
    names = [name for name in names if name != "radial/figure5"]
    run(*names, "--smoke", "--out", tmp_path)
    for name in names:
        folder = tmp_path / "smoke" / name
        report = (folder / "report.md").read_text()
        assert report.startswith("# ") and "https://arxiv.org/abs/" in report
        pictures = re.findall(r"\w+\.png", report)
        assert all((folder / picture).stat().st_size for picture in pictures)
        assert pictures or report.count("\n| ") > 2
        for cell in json.loads((folder / "results.json").read_text()):
            assert all(np.isfinite(one["nll"]) for one in cell["seeds"])


def test_a_killed_run_resumes_and_a_finished_run_is_only_read(
    run, graph_optimizer, tmp_path, capsys
):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = Command(PAPERS / "run.py", ONE, "--smoke", "--out", killed)
    deadline = time.monotonic() + 120
    while not list(killed.rglob("latest.bdl")):
        assert process.returncode is None and time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert not list(killed.rglob("history.json")), "was not killed in time"
    run(ONE, "--smoke", "--out", killed)
    run(ONE, "--smoke", "--out", whole)
    found, expected = predictions(killed), predictions(whole)
    assert found.keys() == expected.keys() and len(found) > 5
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)

    files = sorted((whole / "smoke" / "runs").rglob("*.*"))
    times = [path.stat().st_mtime_ns for path in files]
    report = whole / "smoke" / ONE / "report.md"
    before = report.read_text()
    assert "training" in capsys.readouterr().out
    run(ONE, "--smoke", "--out", whole)
    assert "training" not in capsys.readouterr().out
    assert times == [path.stat().st_mtime_ns for path in files]
    assert report.read_text() == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "name some recipes, or `all`"),
        (["vogn/table9"], "Received: 'vogn/table9'"),
        (["vogn/table1", "--seeds", "0"], "--seeds must be at least 1"),
        (["vogn/table1", "--scale", "large"], "invalid choice: 'large'"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(args, said):
    result = start(*args)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            [ONE, "--smoke", "--strategy", "gpus"],
            "--strategy: `name` must .*",
        ),
        (["vogn/figure17", "--scale", "paper"], "Data set `cifar10` .*"),
        (
            ["radial/table2", "--scale", "paper"],
            "Give in `--data-dir` the folder that has boston.csv, with a column"
            " for each input and the target in the last one.",
        ),
    ],
    ids=["strategy", "download", "files"],
)
def test_missing_strategy_data_or_file_ends_in_one_sentence(
    args, said, run, monkeypatch, tmp_path
):
    for name in ("http_proxy", "https_proxy"):  # no network
        monkeypatch.setenv(name, "http://localhost:9")
    if "vogn/figure17" in args:
        args = [*args, "--data-dir", tmp_path]
    with pytest.raises(SystemExit) as error:
        run(*args, "--out", tmp_path)
    message = str(error.value)
    assert re.fullmatch(said, message), message
