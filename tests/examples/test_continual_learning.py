"""The data of `continual_learning.py`."""

import dataclasses
import socket
import sys

import pytest
import requests
import tensorflow_datasets as tfds

from tests.examples.conftest import EXAMPLES

sys.path.append(str(EXAMPLES))

import continual_learning  # noqa: E402


@pytest.fixture
def offline(monkeypatch):
    """Lets nothing be downloaded."""

    def fail(*args, **kwargs):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(requests.utils, "get_environ_proxies", lambda _: {})


def test_absent_data_are_skipped_with_the_reason(offline, tmp_path, capsys):
    assert not continual_learning.can_load("fashion_mnist", str(tmp_path))
    printed = capsys.readouterr().out
    assert printed.startswith("Skipped fashion_mnist. Data set `fashion_mnist`")
    assert "is not on this machine" in printed
    assert continual_learning.can_load("digits", str(tmp_path))


def test_program_ends_in_an_error_if_all_data_are_absent(
    offline, tmp_path, run, capsys
):
    data = "--data", "mnist", "fashion_mnist", "--data-dir", tmp_path / "none"
    with pytest.raises(SystemExit, match="None of the data sets can be loaded"):
        run("continual_learning.py", *data, "--out", tmp_path / "out")
    printed = capsys.readouterr().out
    assert "Skipped mnist." in printed and "Skipped fashion_mnist." in printed
    assert not (tmp_path / "out").exists()


def test_paper_has_no_settings_for_the_digits(run, capsys):
    with pytest.raises(SystemExit):
        run("continual_learning.py", "--paper")
    assert "--paper has no settings for the digits" in capsys.readouterr().err


def test_a_task_has_two_classes_and_the_images_of_its_settings():
    own = continual_learning.OWN
    settings = dataclasses.replace(own, num_tasks=2, train_size=5)
    with tfds.testing.mock_data(num_examples=100):
        tasks = continual_learning.Tasks("fashion_mnist", "single", settings)
    assert tasks.input_shape == (28, 28, 1)
    labels = [(0, 1), (2, 3)]
    for (x, y), (_, y_test), both in zip(
        tasks.train, tasks.test, labels, strict=True
    ):
        assert x.shape == (5, 28, 28, 1) and set(y) <= set(both)
        assert set(y_test) == set(both)
