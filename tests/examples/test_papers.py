"""The runner of the papers' experiments, as its users start it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
ENV = {**os.environ, "MPLBACKEND": "Agg"}
# A recipe of one training, and what it is kept as.
ONE = "radial/figure11"


def command(*args):
    return [sys.executable, str(PAPERS / "run.py"), *map(str, args)]


def run(*args):
    return subprocess.run(
        command(*args), capture_output=True, text=True, env=ENV
    )


@pytest.fixture(scope="module")
def names():
    listed = run("--list")
    assert listed.returncode == 0, listed.stderr
    return [line.split()[0] for line in listed.stdout.splitlines()]


def predictions(folder):
    """All predictions of a run, by file."""
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


def test_every_recipe_passes_in_smoke_and_writes_its_report(names, tmp_path):
    result = run("all", "--smoke", "--out", tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    for name in names:
        folder = tmp_path / "smoke" / name
        report = (folder / "report.md").read_text()
        assert report.startswith("# ") and "https://arxiv.org/abs/" in report
        pictures = re.findall(r"\w+\.png", report)
        assert all((folder / picture).stat().st_size for picture in pictures)
        assert pictures or report.count("\n| ") > 2
        for cell in json.loads((folder / "results.json").read_text()):
            assert all(np.isfinite(one["nll"]) for one in cell["seeds"])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    result = run(ONE, "--smoke", "--out", folder)
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


def test_a_killed_run_resumes_to_what_it_would_have_been(
    uninterrupted, tmp_path
):
    process = subprocess.Popen(
        command(ONE, "--smoke", "--out", tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENV,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("latest.bdl")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(tmp_path.rglob("history.json")), "was not killed in time"
    result = run(ONE, "--smoke", "--out", tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    found, expected = predictions(tmp_path), predictions(uninterrupted)
    assert found.keys() == expected.keys() and len(found) > 5
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)


def test_what_is_finished_is_not_done_again(uninterrupted):
    files = sorted((uninterrupted / "smoke" / "runs").rglob("*.*"))
    times = [path.stat().st_mtime_ns for path in files]
    report = uninterrupted / "smoke" / ONE / "report.md"
    before = report.read_text()
    result = run(ONE, "--smoke", "--out", uninterrupted)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "training" not in result.stdout
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
def test_wrong_arguments_are_named_in_one_sentence(args, said):
    result = run(*args)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]


def test_a_strategy_that_is_not_there_is_named_in_one_sentence(tmp_path):
    result = run(ONE, "--smoke", "--strategy", "gpus", "--out", tmp_path)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("--strategy: `name` must")


def test_data_that_cannot_be_downloaded_is_named_in_one_sentence(tmp_path):
    nowhere = "http://localhost:9"
    offline = {"http_proxy": nowhere, "https_proxy": nowhere}
    result = subprocess.run(
        command("vogn/figure17", "--scale", "paper", "--out", tmp_path),
        capture_output=True,
        text=True,
        env=ENV | offline | {"TFDS_DATA_DIR": str(tmp_path)},
    )
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Data set `cifar10`")


def test_files_that_are_missing_are_named(tmp_path):
    result = run("radial/table2", "--scale", "paper", "--out", tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "Give in `--data-dir` the folder that has boston.csv, with a column "
        "for each input and the target in the last one."
    )
