"""Two workers, started once for all tests of this folder."""

import os
import time

import pytest

from keras_bdl._saving._state_file import read_state
from tests.distribute.cases import CASES
from tests.distribute.cases import CASES_OF_WORKERS
from tests.helpers import optimize_graphs
from tests.helpers import two_workers
from tests.processes import Command

PATIENCE = 900  # seconds


def start_pair(module, folder):
    """Starts two workers, which connect through free ports."""
    return [
        Command(module, index, folder, TF_CONFIG=config)
        for index, config in enumerate(two_workers())
    ]


@pytest.fixture(scope="session")
def running():
    """Returns a list of processes, and kills those that run at the end."""
    processes = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session", autouse=True)
def folder(running, tmp_path_factory):
    """Returns the folder of the two workers, which run beside the tests."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # shared by all processes of this test run
    folder = shared / "two_workers"
    try:
        folder.mkdir()
    except FileExistsError:
        return folder  # another process has started them
    running += start_pair("tests.distribute.worker", folder)
    return folder


@pytest.fixture(scope="session")
def results(running, folder):
    """Returns the results of each case on both workers, by name."""
    for process in running[:2]:
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output[-3000:]
    files = [folder / f"{index}.bdl" for index in range(2)]
    end = time.time() + PATIENCE
    while not all(file.exists() for file in files) and time.time() < end:
        time.sleep(0.2)
    states = [read_state(file) for file in files]
    return {
        name: [state[name] for state in states] for name in CASES_OF_WORKERS
    }


@pytest.fixture(scope="session")
def devices(mirrored, tmp_path_factory):
    """Returns the result of a case in this process, on two logical CPUs."""
    known = {}

    def run(name):
        if name not in known:
            # As in the processes of the workers: the eigenvectors of a
            # Kronecker factor depend on the last digit.
            optimize_graphs(True)
            known[name] = CASES[name](mirrored, tmp_path_factory.mktemp(name))
        return known[name]

    return run
