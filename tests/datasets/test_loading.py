import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from sklearn.datasets import load_digits

from keras_bdl import datasets
from keras_bdl import extend
from keras_bdl.datasets._augmentation import resized_central_crop
from tests.helpers import assert_moment
from tests.helpers import cross_entropy

CIFAR = datasets.SPECS["cifar10"]


def values(x):
    """Returns the constant value of each image of the fixture."""
    x = np.concatenate(list(x)) * CIFAR.stddev + CIFAR.mean
    return np.median(np.round(255 * x), axis=(1, 2, 3)).astype(int)


def inputs(data):
    return data.map(lambda x, y: x)


def labels(data):
    return np.concatenate([y for _, y in data])


TEST_ONLY = [n for n, s in datasets.SPECS.items() if s.train_split is None]


@pytest.mark.parametrize(
    "name", [n for n in datasets.SPECS if n not in ("digits", *TEST_ONLY)]
)
def test_every_set_is_read_without_a_network(name):
    size = {"diabetic_retinopathy_detection": 64}.get(name)
    with tfds.testing.mock_data(num_examples=5):
        data = datasets.load(name, batch_size=2, image_size=size)
        for part in (data.train, data.train_eval, data.test):
            x, y = next(iter(part))
            assert x.shape == (2, *data.input_shape) and x.dtype == "float32"
            assert y.shape == (2,) and y.dtype == "int32"
            assert len(part) == 3
        assert next(iter(data.ood["noise"])).shape == x.shape
    assert data.train_size == 5


@pytest.mark.parametrize("name", TEST_ONLY)
def test_corrupted_set_has_test_images_that_are_not_resized(name):
    clean = datasets.SPECS[name.removesuffix("_corrupted")]
    with tfds.testing.mock_data(num_examples=3):
        data = datasets.load(f"{name}/fog_3", batch_size=2)
        x, y = next(iter(data.test))
    assert x.shape == (2, *data.input_shape) and y.dtype == "int32"
    # Nothing is resized: a pixel of an input is a pixel of the file.
    pixels = 255 * (np.array(x) * clean.stddev + clean.mean)
    np.testing.assert_allclose(pixels, np.round(pixels), atol=1e-3)
    assert pixels.min() > -0.01 and pixels.max() < 255.01
    assert (data.train, data.train_eval, data.train_size) == (None, None, 0)
    assert data.num_classes == {"cifar10": 10, "imagenet2012": 1000}[clean.name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar10_corrupted", r'"cifar10_corrupted/brightness_3".*spatter'),
        ("cifar10_corrupted/fog", r"Received: name='cifar10_corrupted/fog'"),
        ("imagenet2012_corrupted/fog_6", "severity from 1 to 5"),
    ],
)
def test_corrupted_set_needs_a_corruption_and_a_severity(name, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(name)


def test_corrupted_set_has_no_validation_part():
    with tfds.testing.mock_data(num_examples=2):
        with pytest.raises(ValueError, match="only test images.*=1"):
            datasets.load("cifar10_corrupted/fog_1", validation_size=1)


def test_spec_reads_any_other_set():
    flowers = extend.DatasetSpec(
        name="oxford_flowers102",
        image_size=24,
        mean=(0.485, 0.456, 0.406),
        stddev=(0.229, 0.224, 0.225),
        prepare=resized_central_crop,
    )
    with tfds.testing.mock_data(num_examples=3):
        data = datasets.load(flowers)
        assert next(iter(data.train))[0].shape == (3, 24, 24, 3)
    assert data.num_classes == 102


def test_stored_pixels_are_normalised_in_their_order(data_dir):
    data = datasets.load("cifar10", data_dir=data_dir)
    np.testing.assert_array_equal(values(inputs(data.train_eval)), range(100))
    np.testing.assert_array_equal(labels(data.test), np.arange(40) % 10)


def test_training_holds_every_example_once(data_dir):
    data = datasets.load("cifar10", data_dir=data_dir, batch_size=16)
    np.testing.assert_array_equal(
        np.sort(values(inputs(data.train))), range(100)
    )


def test_validation_is_the_end_of_the_training_data(data_dir):
    data = datasets.load("cifar10", data_dir=data_dir, validation_size=30)
    np.testing.assert_array_equal(
        values(inputs(data.validation)), range(70, 100)
    )
    np.testing.assert_array_equal(values(inputs(data.train_eval)), range(70))
    assert data.train_size == 70


def test_other_five_classes_are_held_out(data_dir):
    classes = (0, 1, 2, 8, 9)
    data = datasets.load("cifar10", data_dir=data_dir, classes=classes)
    stored = values(inputs(data.test))
    expected = [i for i in range(40) if i % 10 in classes]
    np.testing.assert_array_equal(stored, expected)
    np.testing.assert_array_equal(
        labels(data.test), [classes.index(i % 10) for i in expected]
    )
    np.testing.assert_array_equal(
        values(data.ood["held_out_classes"]),
        [i for i in range(40) if i % 10 not in classes],
    )
    assert data.train_size == 50 == len(labels(data.train))
    assert data.class_names[3:] == ("ship", "truck")


def test_stl10_like_cifar10_is_preprocessed_like_cifar10(data_dir):
    data = datasets.load("stl10", like="cifar10", data_dir=data_dir)
    assert data.input_shape == (32, 32, 3)
    assert data.class_names == CIFAR.class_names
    stored = values(inputs(data.test))
    monkey = 7
    np.testing.assert_array_equal(
        stored, [i for i in range(30) if i % 10 != monkey]
    )
    names = datasets.SPECS["stl10"].class_names
    for i, y in zip(stored, labels(data.test), strict=True):
        name = names[i % 10].replace("car", "automobile")
        assert data.class_names[y] == name
    np.testing.assert_array_equal(
        values(data.ood["held_out_classes"]), [7, 17, 27]
    )


def test_ood_sets_are_preprocessed_like_the_set(data_dir):
    data = datasets.load("cifar10", ood=["stl10"], data_dir=data_dir)
    assert list(data.ood) == ["stl10"]
    assert next(iter(data.ood["stl10"])).shape == (30, 32, 32, 3)
    np.testing.assert_array_equal(values(data.ood["stl10"]), range(30))


def test_gray_images_become_colour_images():
    with tfds.testing.mock_data(num_examples=2):
        data = datasets.load("cifar10", ood=["mnist"])
        x = next(iter(data.ood["mnist"])) * CIFAR.stddev + CIFAR.mean
    np.testing.assert_allclose(x[..., :1], x[..., 1:2], atol=1e-5)


def test_resumed_run_reads_the_same_data(data_dir):
    def run(model, first, last):
        data = datasets.load("cifar10", data_dir=data_dir, batch_size=50)
        model.fit(
            data.train,
            initial_epoch=first,
            epochs=last,
            verbose=0,
            callbacks=[data.epochs],
        )
        return model

    def make():
        model = keras.Sequential(
            [
                keras.Input((32, 32, 3)),
                keras.layers.Flatten(),
                keras.layers.Dense(10, kernel_initializer="zeros"),
            ]
        )
        model.compile(
            keras.optimizers.SGD(1e-3),
            cross_entropy(),
        )
        return model

    whole = run(make(), 0, 3).get_weights()
    killed = run(make(), 0, 1)
    keras.utils.set_random_seed(1)
    resumed = run(killed, 1, 3).get_weights()
    np.testing.assert_array_equal(whole[0], resumed[0])


def test_drop_remainder_cuts_training_data_alone(data_dir):
    data = datasets.load(
        "cifar10",
        data_dir=data_dir,
        batch_size=16,
        drop_remainder=True,
        image_size=28,
    )
    for part in (data.train, data.train_eval):
        spec = keras.tree.flatten(part.element_spec)[0]
        assert spec.shape == (16, 28, 28, 3)
        assert len(part) == 100 // 16
    for part in (data.test, data.ood["noise"]):
        sizes = [len(keras.tree.flatten(batch)[0]) for batch in part]
        assert sizes == [16, 16, 8]
    padded = datasets.padded(data.test, 16)
    assert [part.shape[0] for part in padded.element_spec] == [16, 16, 16]
    x, y, weight = map(np.concatenate, zip(*padded, strict=True))
    expected = map(np.concatenate, zip(*data.test, strict=True))
    np.testing.assert_array_equal(weight, [1.0] * 40 + [0.0] * 8)
    for part, whole in zip((x, y), expected, strict=True):
        np.testing.assert_array_equal(part[:40], whole)


def test_padding_has_no_effect_on_weighted_metrics():
    x, y = np.eye(5, dtype="float32"), np.array([0, 0, 0, 0, 4])
    model = keras.Sequential([keras.Input((5,)), keras.layers.Identity()])
    model.compile(
        loss="sparse_categorical_crossentropy", weighted_metrics=["accuracy"]
    )
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(3)
    whole = model.evaluate(datasets.padded(data, 3), verbose=0)
    assert whole[1] == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "cifar"}, "`name` must be one of digits, mnist,.*cifar'"),
        ({"name": "minst"}, 'Did you mean "mnist".*minst'),
        ({"name": "cifar10", "ood": ["CIFAR-100"]}, "Did you mean.*cifar100"),
        ({"name": "cifar10", "like": "kmnist"}, "stl10 like cifar10"),
        ({"name": "cifar10", "ood": "noise"}, "`ood` must be a list"),
        ({"name": "cifar10", "ood": ["digits"]}, "other than digits"),
        ({"name": "cifar10", "ood": ["lsun"]}, "`ood` must be one of"),
        ({"name": "cifar10", "image_size": 40}, "at most 32.*image_size=40"),
        ({"name": "cifar10", "batch_size": 0}, "`batch_size` must be"),
        ({"name": "cifar10", "seed": None}, "`seed` must be an integer"),
        ({"name": "cifar10", "validation_size": 0.1}, "`validation_size`"),
        ({"name": "digits", "classes": [1]}, "at least two different"),
        ({"name": "digits", "classes": [1, 10]}, "integers below 10"),
        ({"name": "digits", "classes": [1, 1.5]}, "integers below 10"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with tfds.testing.mock_data(num_examples=2):
        with pytest.raises(ValueError, match=message):
            datasets.load(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stddev": (0.2, 0.0, 0.2)}, "`stddev` must be positive"),
        ({"stddev": (0.2, float("nan"), 0.2)}, "`stddev` must be positive"),
        ({"mean": (0.5,)}, "one number per channel"),
    ],
)
def test_wrong_spec_raises_an_error(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CIFAR, **change)


def test_spec_must_map_every_label():
    spec = dataclasses.replace(CIFAR, label_map=(0, 1))
    with tfds.testing.mock_data(num_examples=2):
        with pytest.raises(ValueError, match="each of the 10 labels"):
            datasets.load(spec)


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
