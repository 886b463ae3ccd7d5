import random
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_bdl._saving._state_file import read_state
from tests.processes import Command

SCRIPT = Path(__file__).with_name("killed_run.py")


@pytest.fixture
def start():
    """Starts the command, and kills all its processes in the end."""
    processes = []

    def start(directory, result, **env):
        processes.append(Command(SCRIPT, directory, result, **env))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def finish(process):
    process.communicate()
    return process.returncode


def kill_after(process, seconds):
    assert "training\n" in process.stdout  # waits for this line
    time.sleep(seconds)
    process.kill()
    return finish(process)


def test_process_killed_twice_ends_bit_for_bit_like_an_unkilled_one(
    start, tmp_path
):
    whole = start(tmp_path / "whole", tmp_path / "whole.bdl")
    directory, result = tmp_path / "killed", tmp_path / "killed.bdl"

    # Once in the middle of a write, once whenever it happens to be.
    assert finish(start(directory, result, KILL_IN_WRITE="7")) == -9
    assert list(directory.glob(".latest.bdl.*.tmp")), "not killed in a write"
    moment = random.uniform(0.3, 1.2)
    assert kill_after(start(directory, result), moment) == -9
    assert not result.exists(), f"over before it was killed at {moment}"
    assert finish(start(directory, result)) == 0
    assert finish(whole) == 0

    ours, theirs = read_state(result), read_state(tmp_path / "whole.bdl")
    assert len(ours["history"]["loss"]) == 12
    for (path, a), (other, b) in zip(
        keras.tree.flatten_with_path(ours),
        keras.tree.flatten_with_path(theirs),
        strict=True,
    ):
        assert path == other
        np.testing.assert_array_equal(a, b, err_msg=f"{path}, {moment}")
