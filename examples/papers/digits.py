"""Digits that replace the data of the papers."""

import dataclasses
import functools
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from training_data import Data

import keras_bdl as bdl
from keras_bdl.extend import ImagePipeline
from keras_bdl.extend import pad_crop


class Digits(NamedTuple):
    """Digits that replace a data set of a paper.

    Attributes:
        classes: The digits that are learned.
        size: Number of training images, at most.
        parity: Whether the two classes are even and odd digits.
        noise: Standard deviation of the noise in all images.
    """

    classes: tuple
    size: int
    parity: bool = False
    noise: float = 0.0


ALL = tuple(range(10))
# Digits of scikit-learn, of 8 x 8 pixels.
DIGITS = {
    "cifar10": Digits(tuple(range(8)), 300),
    "cifar100": Digits(ALL, 300),
    "imagenet2012": Digits(ALL, 600),
    "cifar5": Digits(tuple(range(5)), 200),
    "mnist": Digits(ALL, 300),
    # Two classes with many kinds of images, of poor quality.
    "retinopathy": Digits(ALL, 200, parity=True, noise=0.7),
}
# Digits of MNIST, of 28 x 28 pixels.
MNIST = {
    "cifar10": Digits(ALL, 8_000),
    "imagenet2012": Digits(ALL, 8_000, noise=1.0),
    "retinopathy": Digits(ALL, 2_000, parity=True, noise=1.0),
}
# Numbers of images of MNIST for validation and, at most, for the test.
MNIST_VALIDATION, MNIST_TEST = 500, 2_000
# The largest shift of an augmented image, in pixels.
SHIFTS = {"digits": 1, "mnist": 2}


@functools.cache
def of_scikit_learn(digits, batch_size, augment, scale, seed):
    """Returns the `Data` of digits of scikit-learn.

    All seeds have the same training images.

    Args:
        digits: The `Digits`.
        batch_size: Size of a batch.
        augment: Whether to shift training images.
        scale: The scale.
        seed: Seed of order and augmentation.
    """
    splits = bdl.datasets.load(
        "digits", classes=digits.classes, validation_size=150, seed=0
    )
    parts = splits.train, splits.test, splits.validation
    size = 50 if scale == "smoke" else None
    return _data(
        "digits", digits, parts, splits.ood, size, batch_size, augment, seed
    )


@functools.cache
def of_mnist(digits, batch_size, augment, seed, data_dir):
    """Returns the `Data` of digits of MNIST.

    All seeds have the same training images. `sets["rotated"]` has the test
    images, turned by 60 degrees to either side.

    Args:
        digits: The `Digits`.
        batch_size: Size of a batch.
        augment: Whether to shift training images.
        seed: Seed of order and augmentation.
        data_dir: Folder of TensorFlow Datasets.
    """
    splits = bdl.datasets.load(
        "mnist",
        validation_size=MNIST_VALIDATION,
        augment=False,
        seed=0,
        data_dir=data_dir,
    )
    train = _first(splits.train_eval, digits.size)
    test = _first(splits.test, MNIST_TEST)
    validation = _first(splits.validation, MNIST_VALIDATION)
    (noise,) = _first(splits.ood["noise"].map(lambda x: (x,)), MNIST_TEST)
    ood = {
        "noise": noise,
        "rotated": bdl.datasets.corrupt(test[0], "rotation", severity=5),
    }
    return _data(
        "mnist",
        digits,
        (train, test, validation),
        ood,
        None,
        batch_size,
        augment,
        seed,
    )


def _first(batches, size):
    """Returns the first examples of batches, as one array for each part."""
    found, count = [], 0
    for batch in batches.as_numpy_iterator():
        found.append(batch)
        count += len(batch[0])
        if count >= size:
            break
    return tuple(np.concatenate(p)[:size] for p in zip(*found, strict=True))


def _data(name, digits, parts, ood, test_size, batch_size, augment, seed):
    """Returns the `Data` made of arrays.

    Args:
        name: Name of the data in `keras_bdl.datasets`.
        digits: The `Digits`.
        parts: Images and labels for training, test and validation.
        ood: Images by name of the out-of-distribution set.
        test_size: Number of images of every test set; `None` for all.
        batch_size: Size of a batch.
        augment: Whether to shift training images.
        seed: Seed of order and augmentation.
    """
    rng = np.random.default_rng(0)

    def changed(part):
        x, y = part
        x = x + digits.noise * rng.normal(size=x.shape).astype("float32")
        return x, y % 2 if digits.parity else y

    train, test, validation = map(changed, parts)
    x, y = (part[: digits.size] for part in train)
    test = tuple(part[:test_size] for part in test)
    ood = {name: part[:test_size] for name, part in ood.items()}
    # `stl10` stands for a test set from another source.
    sets = {"test": test, "stl10": _other_camera(*test), **ood}
    spec = bdl.datasets.SPECS[name]
    spec = dataclasses.replace(
        spec, augment=functools.partial(pad_crop, padding=SHIFTS[name])
    )
    pipeline = ImagePipeline(spec, spec.image_size, batch_size, False, seed)
    pixels = (x * spec.stddev + spec.mean) * spec.max_value
    examples = tf.data.Dataset.from_tensor_slices(
        (np.arange(len(x)), pixels.astype("float32"), y)
    )
    epochs = bdl.datasets.EpochCounter()
    return Data(
        pipeline.training(
            examples, lambda image: image, epochs=epochs, augment=augment
        ),
        (x, y),
        validation,
        sets,
        len(x),
        -(-len(x) // batch_size),
        x.shape[1:],
        2 if digits.parity else len(digits.classes),
        epochs,
    )


def _other_camera(x, y):
    """Returns digits as from another camera: blurred, darker and noisy."""
    noise = np.random.default_rng(0).normal(size=x.shape)
    kernel = np.outer((1, 2, 1), (1, 2, 1))[..., None, None] / 16
    blurred = keras.ops.conv(x, kernel.astype("float32"), padding="same")
    shifted = 0.8 * np.asarray(blurred) + 0.5 * noise
    return shifted.astype("float32"), y
