"""Settings and fixtures of the processes that run tests."""

import ctypes
import functools
import gc
import itertools
import os
import uuid
import zlib

import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.util import tf_stack

# TensorFlow stores the Python stack of every operation, for its error messages.
# One stack for all operations takes 6 % off the time.
_ONE_STACK = tf_stack.extract_stack()
tf_stack.extract_stack = lambda stacklevel=1: _ONE_STACK

# Keeps freed memory, which the next test needs again (M_MMAP_THRESHOLD,
# M_TRIM_THRESHOLD and M_TOP_PAD of the C library of Linux).
if hasattr(libc := ctypes.CDLL(None), "mallopt"):
    for option, value in ((-3, 2**30), (-1, 2**30), (-2, 2**26)):
        libc.mallopt(option, value)

# Traces are millions of objects that stay. With the thresholds of Python, a
# tenth of the time goes into looking through them again and again. A full
# collection would take up to a minute.
gc.set_threshold(100_000, 50, 1_000_000)

# Two logical CPUs for the distribution tests. TensorFlow allows this only
# before the first op, hence here and not in a fixture.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)

# TensorFlow rewrites each pipeline before it runs. That takes a fifth of the
# time of short trainings, and changes no element.
_PLAIN = tf.data.Options()
_PLAIN.experimental_optimization.apply_default_optimizations = False
_PLAIN.autotune.enabled = False
_iterate = tf.data.Dataset.__iter__


@functools.wraps(_iterate)
def _iterate_plainly(dataset):
    if tf.executing_eagerly():
        dataset = dataset.with_options(_PLAIN)
    return _iterate(dataset)


tf.data.Dataset.__iter__ = _iterate_plainly

import keras
import numpy as np

from keras_bdl._saving._storage_path import StoragePath
from tests.helpers import dtype_policy
from tests.helpers import optimize_graphs

# TensorFlow's graph optimizer is on, as in a user's process. It takes an eighth
# of the time of short trainings; this variable turns it off.
OPTIMIZE_GRAPHS = os.environ.get("KERAS_BDL_TEST_GRAPH_OPTIMIZER", "1") != "0"

# The kernels of eager operations stay for the next tests: to make them again
# in each test takes a tenth of the time and more. Kernels also hold memory.
TESTS, TESTS_WITH_KERNELS = itertools.count(1), 150


def _seed_numbers(module, name):
    if (rng := getattr(module, "RNG", None)) is not None:
        seed = zlib.crc32(name.encode())
        rng.bit_generator.state = np.random.default_rng(
            seed
        ).bit_generator.state


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Sets the graph optimizer. Seeds `RNG` for the fixtures of a module."""
    optimize_graphs(OPTIMIZE_GRAPHS)
    _seed_numbers(item.module, item.module.__name__)


# A test sees the same numbers whichever tests ran before it.
@pytest.fixture(autouse=True)
def _own_numbers(request):
    _seed_numbers(request.module, request.node.nodeid)


@pytest.fixture(autouse=True)
def _clean_state(monkeypatch):
    with monkeypatch.context() as patch:
        if next(TESTS) % TESTS_WITH_KERNELS:
            patch.setattr(pywrap_tfe, "TFE_ContextClearCaches", lambda _: None)
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(0)


@pytest.fixture
def graph_optimizer():
    """Optimizes graphs as a user's process does: same graphs, same rounding."""
    optimize_graphs(True)


@pytest.fixture
def half_precision():
    """Makes the layers of a test in `mixed_float16`."""
    with dtype_policy("mixed_float16"):
        yield


# One for all tests: the collective operations of a second strategy would be
# numbered from the start again, and be taken for those of the first.
@pytest.fixture(scope="session")
def mirrored():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture(params=["disk", "bucket"])
def storage(request, tmp_path, monkeypatch):
    """A folder on the disk, and one on a remote file system of TensorFlow.

    `ram://` has files without folders, as a bucket. A test with it ends with an
    error if it leaves anything, such as a folder "ram:", on the disk.
    """
    if request.param == "disk":
        yield StoragePath(tmp_path)
        return
    monkeypatch.chdir(tmp_path)
    folder = StoragePath(f"ram://bucket/{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    yield folder
    assert os.listdir(tmp_path) == []
