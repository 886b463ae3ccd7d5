import importlib
import re
import socket
import sys

import pytest
import requests
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_bdl import datasets
from keras_bdl.datasets._tfds_reader import TFDSReader
from tests.datasets.conftest import write


def test_missing_network_raises_a_clear_error(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(requests.utils, "get_environ_proxies", lambda _: {})
    with pytest.raises(ConnectionError, match='no network.*set "digits"'):
        datasets.load("cifar10", data_dir=str(tmp_path))


@pytest.mark.parametrize("proxy", ["http://localhost:9", "localhost:9"])
def test_dead_proxy_raises_before_any_attempt(proxy, tmp_path, monkeypatch):
    def fail(self):
        raise RuntimeError("tried for minutes")

    for name in ("HTTPS_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(ConnectionError, match='no network.*set "digits"'):
        datasets.load("cifar10", data_dir=str(tmp_path))


def test_broken_download_raises_the_same_error(tmp_path, monkeypatch):
    def fail(self):
        raise requests.ConnectionError("HTTPSConnectionPool: max retries")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: [])
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(ConnectionError, match="`data_dir` a folder"):
        datasets.load("mnist", data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("imagenet2012", "ILSVRC2012_img_train.tar"),
        ("diabetic_retinopathy_detection", "trainLabels.csv"),
    ],
)
def test_manual_download_is_named_before_any_attempt(
    name, file, tmp_path, capfd
):
    manual = re.escape(str(tmp_path / "downloads" / "manual"))
    message = f'^[^\n]*by hand. Put .*`{manual}`.*{file}.*set "digits"\\.$'
    with pytest.raises(FileNotFoundError, match=message):
        datasets.load(name, data_dir=str(tmp_path))
    assert "Downloading" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("At least one of the split should be available"),
        tf.errors.NotFoundError(None, None, "ILSVRC2012_img_val.tar"),
    ],
)
def test_files_of_another_set_raise_an_error(error, tmp_path, monkeypatch):
    def fail(self):
        raise error

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    (tmp_path / "downloads" / "manual" / "other").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="by hand") as raised:
        datasets.load("imagenet2012", data_dir=str(tmp_path))
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("importlib_resources", r'"keras-bdl\[examples\]".*set "digits"'),
        ("cv2", "import of cv2"),
    ],
)
def test_error_names_the_extra_only_for_packages_in_it(
    module, message, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: [])
    monkeypatch.setattr(
        tfds.core.DatasetBuilder,
        "download_and_prepare",
        lambda self: importlib.import_module(module),
    )
    with pytest.raises(ImportError, match=message):
        datasets.load("mnist", data_dir=str(tmp_path))


def test_missing_tensorflow_datasets_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r'"keras-bdl\[examples\]"'):
        datasets.load("cifar10")


def test_parts_number_their_examples_as_the_whole_set_does(tmp_path):
    write(tmp_path, "cifar10", 32, {"train": 101, "test": 10})
    reader = TFDSReader("cifar10", str(tmp_path))
    found = [
        (int(position), int(reader.decode(image)[0, 0, 0]))
        for index in range(3)
        for position, image, _ in reader.examples("train[:-1]", (index, 3))
    ]
    assert found == [(i, i) for i in range(100)]
