import random
import re
import time

import pytest

from keras_bdl._saving._state_file import read_state
from tests.distribute.conftest import PATIENCE
from tests.distribute.conftest import start_pair
from tests.distribute.test_two_workers import assert_same


@pytest.fixture
def start(tmp_path):
    """Starts the command again, and kills it at the end if it still runs."""
    started = []

    def start():
        started.append(start_pair("tests.distribute.killed_run", tmp_path))
        return started[-1]

    yield start
    for process in (process for pair in started for process in pair):
        process.kill()
        process.communicate()


def killed_while_training(pair, index):
    """Kills one of two workers and returns the output of the other."""
    for line in pair[index].stdout:
        if line == "training\n":
            break
    time.sleep(random.uniform(0.2, 0.8))
    pair[index].kill()
    output, _ = pair[1 - index].communicate(timeout=PATIENCE)
    pair[index].communicate()
    assert pair[index].returncode == -9, "over before it was killed"
    assert pair[1 - index].returncode > 0
    return output


def test_killed_worker_stops_the_other_and_the_command_resumes(
    start, tmp_path, results
):
    for index in (1, 0):  # the chief, which writes files, is the last
        said = killed_while_training(start(), index)
        # TensorFlow may print more when the process ends.
        (said,) = re.findall("^RuntimeError: Another worker.*", said, re.M)
        assert f"Received, as worker {1 - index}: " in said

    for process in start():
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output[-3000:]
    for index, whole in enumerate(results["long_run"]):
        assert_same(read_state(tmp_path / f"{index}.bdl"), whole)
