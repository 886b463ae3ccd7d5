import numpy as np
import pytest
from sklearn.datasets import load_digits

from keras_bdl import datasets
from tests.helpers import assert_moment


def stored():
    digits = load_digits()
    return digits.images.astype("float32"), digits.target


def pixels(x):
    spec = datasets.SPECS["digits"]
    return np.round((x * spec.stddev[0] + spec.mean[0]) * 16)[..., 0]


def sort(images):
    rows = images.reshape(len(images), -1)
    return rows[np.lexsort(rows.T)]


def test_train_and_test_hold_every_digit_once():
    data = datasets.load("digits", classes="all")
    parts = [pixels(data.train[0]), pixels(data.test[0])]
    np.testing.assert_array_equal(
        sort(np.concatenate(parts)), sort(stored()[0])
    )
    assert data.train_size == len(parts[0])
    assert data.class_names == tuple("0123456789")


def test_digits_5_to_9_are_held_out_by_default():
    data = datasets.load("digits")
    whole = datasets.load("digits", classes="all")
    for part, full in [(data.train, whole.train), (data.test, whole.test)]:
        kept = full[1] < 5
        np.testing.assert_array_equal(part[0], full[0][kept])
        np.testing.assert_array_equal(part[1], full[1][kept])
    np.testing.assert_array_equal(
        data.ood["held_out_classes"], whole.test[0][whole.test[1] >= 5]
    )
    assert "held_out_classes" not in whole.ood


def test_chosen_classes_are_numbered_in_their_order():
    data = datasets.load("digits", classes=(7, 3))
    images, labels = stored()
    sevens = {image.tobytes() for image in images[labels == 7]}
    x, y = data.train
    found = np.array([p.tobytes() in sevens for p in pixels(x)])
    np.testing.assert_array_equal(y, np.where(found, 0, 1))
    assert data.class_names == ("7", "3")


def test_every_digit_has_the_same_share_in_the_test_set():
    y = datasets.load("digits", classes="all").test[1]
    np.testing.assert_allclose(
        np.bincount(y), np.bincount(stored()[1]) / 3, atol=1
    )


def test_the_split_follows_from_the_seed():
    first, again, other = (datasets.load("digits", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.train[0], again.train[0])
    np.testing.assert_array_equal(first.ood["noise"], again.ood["noise"])
    assert first.train[0].shape != other.train[0].shape or np.any(
        first.train[0] != other.train[0]
    )


def test_validation_is_taken_out_of_the_training_data():
    whole = datasets.load("digits", classes="all")
    data = datasets.load("digits", classes="all", validation_size=100)
    np.testing.assert_array_equal(data.validation[0], whole.train[0][-100:])
    np.testing.assert_array_equal(data.train[1], whole.train[1][:-100])
    np.testing.assert_array_equal(data.test[0], whole.test[0])


def test_stated_statistics_equal_those_of_the_pixels():
    spec = datasets.SPECS["digits"]
    images = stored()[0] / 16
    np.testing.assert_allclose(spec.mean, images.mean(), atol=5e-5)
    np.testing.assert_allclose(spec.stddev, images.std(), atol=5e-5)


def test_noise_is_uniform_over_the_17_values_of_a_pixel():
    noise = pixels(datasets.load("digits").ood["noise"]).ravel()
    assert set(noise) == set(range(17))
    variance = (17**2 - 1) / 12
    assert_moment(noise.mean(), 8, np.sqrt(variance / noise.size))


@pytest.mark.parametrize(
    "options",
    [
        {"like": "cifar10"},
        {"batch_size": 32},
        {"drop_remainder": True},
        {"ood": ["mnist"]},
    ],
)
def test_options_of_other_sets_raise_an_error(options):
    with pytest.raises(ValueError, match="Leave out `like`"):
        datasets.load("digits", **options)


def test_validation_must_be_smaller_than_the_training_data():
    with pytest.raises(ValueError, match="smaller than the 1198 training"):
        datasets.load("digits", validation_size=1198)
