"""Two workers, started once for all tests of this folder."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from keras_bdl.saving import read_state
from tests.distribute.cases import CASES

ROOT = Path(__file__).parents[2]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture(scope="session")
def start():
    """Starts two workers; whatever still runs in the end is killed."""
    processes = []

    def start(script, *args):
        ports = ",".join(free_ports(2))
        # A pytest run under xdist has variables that are not for them.
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        pair = [
            subprocess.Popen(
                [sys.executable, "-m", script, str(index), ports, *args],
                env=env,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for index in range(2)
        ]
        processes.extend(pair)
        return pair

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def results(start, tmp_path_factory):
    """What the cases returned, by name, a list of two for each."""
    folder = tmp_path_factory.mktemp("workers")
    pair = start("tests.distribute.worker", str(folder))
    for process in pair:
        output, _ = process.communicate(timeout=400)
        assert process.returncode == 0, output[-3000:]
    states = [read_state(folder / f"{index}.bdl") for index in range(2)]
    return {name: [state[name] for state in states] for name in CASES}


@pytest.fixture(scope="session")
def devices(mirrored, tmp_path_factory):
    """What a case returns in this process with two logical CPUs."""
    known = {}

    def run(name):
        if name not in known:
            known[name] = CASES[name](mirrored, tmp_path_factory.mktemp(name))
        return known[name]

    return run
