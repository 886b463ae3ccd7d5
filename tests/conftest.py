import importlib
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "Agg")
# Every core has tests to run. With more threads, an operation waits
# for its own parts: a tenth of the time.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import pytest

# Tests with an expensive fixture in common: one process makes it once.
TOGETHER = (
    "tests/callbacks/test_checkpoint.py",
    "tests/callbacks/test_sample_collector.py",
    "tests/distribute/",
    "tests/optimizers/test_logistic_regression.py",
    "tests/test_fresh_process.py",
    "tests/test_pickle.py",
    "tests/tpu/test_lowering.py",
)
# Tests that take long come early, so that all processes end together.
EARLY = ("tests/examples/", "tests/tpu/")


def pytest_configure(config):
    """Imports TensorFlow, but not in the process that only hands out tests."""
    if config.getoption("dist", "no") == "no":
        config.pluginmanager.register(importlib.import_module("tests.session"))


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(EARLY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives tests of `TOGETHER` to one process, and all others one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            found = (path for path in TOGETHER if nodeid.startswith(path))
            return next(found, nodeid)

    return Together(config, log)
