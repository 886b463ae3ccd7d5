from pathlib import Path

import keras_bdl as bdl
from tests.helpers import two_workers
from tests.processes import Command

SCRIPT = Path(__file__).parents[2] / "tpu" / "train.py"


def start(directory, *arguments, **environment):
    common = ("--strategy", "default", "--smoke", "--directory", directory)
    return Command(SCRIPT, *common, *arguments, **environment)


def finish(process):
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    return printed


def test_killed_run_goes_on_by_the_same_command_to_the_same_end(tmp_path):
    whole = finish(start(tmp_path / "whole"))
    assert "atmc, resnet_plus_plus_8 on digits: 1 replicas" in whole
    process = start(tmp_path / "killed")
    for line in process.stdout:
        if line.startswith("Epoch 3/4"):
            break
    process.kill()
    process.communicate()
    assert not (tmp_path / "killed" / "report.json").exists()
    assert "after epoch" in finish(start(tmp_path / "killed"))
    reports = [
        (tmp_path / run / "report.json").read_text()
        for run in ("whole", "killed")
    ]
    assert reports[0] == reports[1]
    posterior = bdl.posteriors.load(tmp_path / "killed" / "posterior.bdl")
    assert len(posterior) == 3


def test_swag_in_half_precision_ends_in_a_report(tmp_path):
    options = ["--method", "swag", "--steps-per-execution", "3", "--bfloat16"]
    finish(start(tmp_path, *options))
    assert "accuracy" in (tmp_path / "report.json").read_text()


def test_two_machines_end_in_one_report(tmp_path):
    options = ["--method", "swag", "--strategy", "multi_worker"]
    processes = [
        start(tmp_path, *options, TF_CONFIG=config) for config in two_workers()
    ]
    first, second = (
        finish(process).partition("Classification of ")[2]
        for process in processes
    )
    assert first == second != ""
    assert "accuracy" in (tmp_path / "report.json").read_text()
    posterior = bdl.posteriors.load(tmp_path / "posterior.bdl")
    assert len(posterior.get_state()["deviations"]) > 0
