"""The recipes at `--scale medium`, with mocked digits of MNIST."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "papers"))
sys.path.append(str(EXAMPLES))

import continual_learning  # noqa: E402
import data as data_sets  # noqa: E402
import digits  # noqa: E402
import lookup  # noqa: E402
import networks  # noqa: E402
import recipe as recipes  # noqa: E402
import run as program  # noqa: E402
from recipe import Cell  # noqa: E402

from tests.examples.test_papers_settings import cells  # noqa: E402
from tests.examples.test_papers_settings import compiled  # noqa: E402
from tests.examples.test_papers_settings import of_network  # noqa: E402

IMAGES = 24


@pytest.fixture
def mnist(monkeypatch):
    """Mocks MNIST by a few random images."""
    monkeypatch.setattr(digits, "MNIST_VALIDATION", 4)
    digits.of_mnist.cache_clear()
    with tfds.testing.mock_data(num_examples=IMAGES):
        yield
    digits.of_mnist.cache_clear()


@pytest.mark.parametrize("cell", cells("medium"))
def test_every_cell_has_its_settings_its_network_and_its_data(cell):
    known, model, _ = compiled(cell, "medium")
    assert model.compiled and known.epochs >= 1
    assert networks.used(cell, "medium") in networks.SUBSTITUTES
    assert data_sets.used(cell.data, "medium") in digits.MNIST.values()


def test_vogn_has_the_defaults_of_the_library():
    cell = Cell("vogn", "cifar10", "LeNet-5", "VOGN")
    _, model, _ = compiled(cell, "medium")
    assert model.optimizer.initial_curvature == 0.1
    _, model, _ = compiled(
        dataclasses.replace(cell, options=(("augmented", False),))
    )
    assert model.optimizer.initial_curvature == "first_batch"


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("LeNet-5", 5),
        ("strided ResNet-8", 8),
        ("strided PreActResNet-20", 20),
        ("strided ResNet++-8", 8),
    ],
)
def test_networks_have_the_depth_of_their_name(name, layers):
    model = networks.SUBSTITUTES[name]((28, 28, 1), 10)
    kernels = [
        layer
        for layer in model.layers
        if type(layer).__name__.endswith(("Conv2D", "Dense"))
    ]
    # Convolutions of size 1 that change a shape do not count.
    kernels = [x for x in kernels if getattr(x, "kernel_size", 3) != (1, 1)]
    assert len(kernels) == layers
    assert model.output_shape == (None, 10)


def test_network_without_a_substitute_ends_in_one_error():
    cell = Cell("vogn", "cifar10", "AlexNet", "Adam")
    with pytest.raises(SystemExit, match="'AlexNet' has no substitute at the"):
        networks.used(cell, "medium")


def test_sets_of_mnist_are_noise_turned_and_blurred_test_images(mnist):
    found = data_sets.load("cifar10", of_network(), "medium", 0)
    assert found.train_size == len(found.statistics[0]) == IMAGES
    assert (found.input_shape, found.classes) == ((28, 28, 1), 10)
    assert len(found.validation[0]) == digits.MNIST_VALIDATION
    test = found.sets["test"]
    assert found.sets.keys() == {"test", "stl10", "rotated", "noise"}
    for name, part in found.sets.items():
        x = part[0] if isinstance(part, tuple) else part
        assert x.shape == (IMAGES, 28, 28, 1) and np.isfinite(x).all()
        assert (name == "test") == np.array_equal(x, test[0])
    x, y = next(iter(found.train))
    assert x.shape == (8, 28, 28, 1) and set(np.array(y)) <= set(range(10))


def test_data_of_two_classes_are_even_and_odd_digits(mnist):
    plain = data_sets.load("cifar10", of_network(), "medium", 0)
    found = data_sets.load("retinopathy", of_network(), "medium", 0)
    assert found.classes == 2
    np.testing.assert_array_equal(
        found.sets["test"][1], plain.sets["test"][1] % 2
    )
    noise = found.statistics[0] - plain.statistics[0]
    assert noise.std() == pytest.approx(
        digits.MNIST["retinopathy"].noise, rel=0.05
    )


def test_number_of_training_images_is_limited(mnist, monkeypatch):
    limited = digits.MNIST["cifar10"]._replace(size=10)
    monkeypatch.setitem(digits.MNIST, "cifar10", limited)
    found = data_sets.load("cifar10", of_network(), "medium", 0)
    assert found.train_size == 10 and found.steps == 2


def test_continual_tasks_of_mnist_have_the_steps_of_the_paper():
    paper, own = (
        continual_learning.SETTINGS[n] for n in ("fashion_mnist", "mnist")
    )
    steps = own.train_size // own.batch_size
    assert steps == (12_000 - paper.validation_size // 5) // paper.batch_size
    assert (own.units, own.epochs, own.rho) == (
        paper.units,
        paper.epochs,
        paper.rho,
    )


def test_recipe_runs_from_images_to_report(mnist, monkeypatch, tmp_path):
    load = recipes.load

    def first_cell(name, scale):
        found = load(name, scale)
        return dataclasses.replace(found, cells=found.cells[:1])

    monkeypatch.setattr(recipes, "load", first_cell)
    tables = lookup.chosen()["medium"]
    monkeypatch.setitem(tables["vogn"]["all"], "epochs", 1)
    args = ["vogn/figure17", "--scale", "medium", "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", ["run.py", *args, "--out", str(tmp_path)])
    program.main()
    folder = tmp_path / "medium" / "vogn" / "figure17"
    (cell,) = json.loads((folder / "results.json").read_text())
    assert cell["method"] == "Adam" and np.isfinite(cell["seeds"][0]["nll"])
    report = (folder / "report.md").read_text()
    assert "scale medium, 1 seed" in report and "| rotated |" in report
