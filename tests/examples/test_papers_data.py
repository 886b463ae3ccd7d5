"""The test data of the papers, at `--scale paper`."""

import dataclasses
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

import keras_bdl as bdl
from tests.datasets.conftest import write

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))

import data as data_sets  # noqa: E402
import settings  # noqa: E402
from lookup import settings_of  # noqa: E402
from recipe import Cell  # noqa: E402
from show import gradient_noise  # noqa: E402
from show import hessian  # noqa: E402
from show import surface  # noqa: E402
from trained import Trained  # noqa: E402

KNOWN = settings.Settings(
    epochs=1,
    batch_size=8,
    augmented=False,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=1e-3,
    validations=1,
    validation_samples=1,
    samples=1,
)
CIFAR = bdl.datasets.SPECS["cifar10"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorflow_datasets")
    write(folder, "cifar10", 32, {"train": 60, "test": 20})
    write(folder, "stl10", 96, {"train": 10, "test": 30})
    write(folder, "svhn_cropped", 32, {"train": 12, "test": 5, "extra": 3})
    return str(folder)


def load(data_dir, **kwargs):
    return data_sets.load(
        "cifar10", KNOWN, "paper", 0, data_dir=data_dir, **kwargs
    )


def values(batches):
    """Returns the number of each image: its constant value."""
    x = np.concatenate(list(batches)) * CIFAR.stddev + CIFAR.mean
    return np.median(np.round(255 * x), axis=(1, 2, 3)).astype(int).tolist()


def test_monkeys_of_stl_10_count_as_frogs(data_dir):
    stl10 = load(data_dir, test="stl10").sets["stl10"]
    x, y = zip(*stl10.as_numpy_iterator(), strict=True)
    numbers, y = values(x), np.concatenate(y)
    assert sorted(numbers) == list(range(30))
    # airplane bird car cat deer dog horse monkey ship truck, among the
    # airplane automobile bird cat deer dog frog horse ship truck of CIFAR-10
    classes = np.array([0, 2, 1, 3, 4, 5, 7, 6, 8, 9])
    np.testing.assert_array_equal(y, classes[np.array(numbers) % 10])
    model = bdl.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    found = bdl.predict(
        model,
        stl10,
        options=bdl.prediction.PredictOptions(
            task="classification", from_logits=True
        ),
        verbose=0,
    )
    np.testing.assert_array_equal(found.y, y)
    assert len(found.log_mean) == 30


def test_svhn_as_foreign_set_is_all_its_training_images(data_dir):
    svhn = load(data_dir, ood=("svhn_cropped",)).sets["svhn_cropped"]
    assert values(svhn.as_numpy_iterator()) == list(range(12))


def test_vogn_crops_imagenet_images_of_256_pixels(monkeypatch):
    used = []

    def crop(image, key, size):
        used.append(size)
        return data_sets.square_crop_flip(image, key, size)

    for name in data_sets.AUGMENTATIONS:
        monkeypatch.setitem(data_sets.AUGMENTATIONS, name, crop)
    for paper, method, count in (("vogn", "VOGN", 1), ("swag", "SWA", 0)):
        cell = Cell(paper, "imagenet2012", "ResNet-18", method)
        known = dataclasses.replace(
            settings_of(cell, method, "paper"), batch_size=2, validation_size=1
        )
        with tfds.testing.mock_data(num_examples=3):
            found = data_sets.load("imagenet2012", known, "paper", 0)
            assert next(iter(found.train))[0].shape == (2, 224, 224, 3)
        assert used == [224] * count
        used.clear()


def as_trained(statistics, folder):
    """Returns an untrained network with training data of a given form."""
    folder.mkdir()
    inputs = keras.Input((32, 32, 3))
    x = keras.layers.GlobalAveragePooling2D()(inputs)
    model = bdl.Model(inputs, keras.layers.Dense(10)(x))
    weights = model.get_weights()
    cell = Cell("swag", "cifar10", "VGG-16", "SWAG")
    session = types.SimpleNamespace(scale="paper")
    trained = Trained(session, cell, "SWA", 0, KNOWN)
    moved = [[w + i * i for w in weights] for i in range(3)]
    posterior = bdl.posteriors.LowRankGaussian(
        weights, None, [np.stack(c) for c in zip(*moved, strict=True)]
    )
    vars(trained).update(
        folder=folder,
        model=model,
        data=types.SimpleNamespace(statistics=statistics),
        posterior={
            "iterates": bdl.posteriors.Ensemble([weights]),
            "SWAG": posterior,
        }.get,
    )
    return trained


def test_batches_and_arrays_give_the_same_measurements(data_dir, tmp_path):
    batches = load(data_dir).statistics
    x, y = zip(*batches.as_numpy_iterator(), strict=True)
    found = []
    arrays = np.concatenate(x), np.concatenate(y)
    for form, statistics in (("batches", batches), ("arrays", arrays)):
        keras.utils.set_random_seed(0)
        trained = as_trained(statistics, tmp_path / form)
        section = surface._around(
            trained,
            trained.posterior("SWAG"),
            trained.loss(),
            0,
            bdl.diagnostics.loss_cross_section,
            bdl.extend.LossCrossSectionReport,
            [[np.ones((3, 10)), np.ones(10)]],
            [0.0, 1.0],
            (0,),
        )
        (noise,) = gradient_noise._along(trained)
        _, largest = hessian._eigenvalues(trained)
        found.append([noise.trace, noise.batch_size, largest])
        found[-1] += section.total[0].tolist()
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert found[0][1] == 8
