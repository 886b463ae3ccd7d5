"""The data of the papers, and digits that replace them."""

import contextlib
import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.datasets import SHARED_CLASSES
from keras_bdl.datasets import ImagePipeline
from keras_bdl.datasets import pad_crop
from keras_bdl.datasets import square_crop_flip

# The five classes of CIFAR-10 that are learned, from the code of SWAG. Its
# paper calls them the first five.
FIVE = (0, 1, 2, 8, 9)
# Augmentations that `keras_bdl.datasets` does not use by default, by their
# words in `published.toml`.
AUGMENTATIONS = {
    "random crop of 224 x 224 out of 256 x 256, flip": square_crop_flip
}
# Out-of-distribution sets of which the VOGN paper uses all training images.
TRAINING_IMAGES = ("svhn_cropped",)


class Digits(NamedTuple):
    """Digits that replace a data set of a paper.

    Attributes:
        classes: The digits that are learned.
        size: Number of training images.
        parity: Whether the two classes are even and odd digits.
        noise: Standard deviation of the noise in all images.
    """

    classes: tuple
    size: int
    parity: bool = False
    noise: float = 0.0


DIGITS = {
    "cifar10": Digits(tuple(range(8)), 300),
    "cifar100": Digits(tuple(range(10)), 300),
    "imagenet2012": Digits(tuple(range(10)), 600),
    "cifar5": Digits(tuple(range(5)), 200),
    "mnist": Digits(tuple(range(10)), 300),
    # Two classes with many kinds of images, of poor quality.
    "retinopathy": Digits(tuple(range(10)), 200, parity=True, noise=0.7),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """The data of one training.

    Attributes:
        train: Batches for training.
        statistics: The same images in a fixed order, without augmentation.
        validation: Images and labels kept for validation, or `None`.
        sets: Images and labels by name, `"test"` among them. The
            out-of-distribution sets have no labels.
        train_size: Number of training images.
        steps: Steps of an epoch.
        input_shape: Shape of an image.
        classes: Number of classes.
        epochs: The callback that counts the passes over `train`.
    """

    train: Any
    statistics: Any
    validation: Any
    sets: dict
    train_size: int
    steps: int
    input_shape: tuple
    classes: int
    epochs: Any


def load(
    name,
    settings,
    scale,
    seed,
    ood=(),
    test="",
    data_dir=None,
    drop_remainder=False,
):
    """Returns the `Data` of a training.

    Args:
        name: Name of the data in the recipes.
        settings: The `Settings`.
        scale: The scale.
        seed: Seed of order and augmentation.
        ood: Names of the out-of-distribution sets.
        test: Name of another data set to test on. Defaults to `""`, none.
        data_dir: Folder of TensorFlow Datasets.
        drop_remainder: Whether to leave out the last, smaller batch.
    """
    if scale == "paper":
        options = {"data_dir": data_dir, "drop_remainder": drop_remainder}
        return _of_paper(name, settings, seed, ood, test, options)
    return _digits(
        used(name, scale),
        settings.batch_size,
        settings.augmented,
        scale,
        seed,
    )


@contextlib.contextmanager
def missing_data_is_said():
    """Ends the program with an error message if data are missing."""
    try:
        yield
    except (ConnectionError, FileNotFoundError, ImportError) as error:
        said = str(error)
        for word, option in (
            ("`data_dir`", "`--data-dir`"),
            ('load the embedded set "digits"', "take `--scale small`"),
        ):
            said = said.replace(word, option)
        raise SystemExit(said) from error


def used(name, scale):
    """Returns the data at a scale: a name, or `Digits`.

    Args:
        name: Name of the data in the recipes.
        scale: The scale.
    """
    if scale == "paper":
        return name
    if name not in DIGITS:
        raise SystemExit(
            f"There is no data {name!r}, only {', '.join(DIGITS)}."
        )
    digits = DIGITS[name]
    if scale == "small":
        return digits
    return digits._replace(classes=digits.classes[:5], size=64)


@missing_data_is_said()
def _of_paper(name, settings, seed, ood, test, options):
    stored = {
        "cifar5": "cifar10",
        "retinopathy": "diabetic_retinopathy_detection",
    }
    load = functools.partial(
        bdl.datasets.load,
        batch_size=settings.batch_size,
        image_size=settings.image_size,
        **options,
    )
    spec = bdl.datasets.SPECS[stored.get(name, name)]
    if settings.augmentation in AUGMENTATIONS:
        augment = AUGMENTATIONS[settings.augmentation]
        spec = dataclasses.replace(spec, augment=augment)
    splits = load(
        spec,
        classes=FIVE if name == "cifar5" else None,
        ood=[_foreign(o) for o in ood if o != "held_out_classes"],
        validation_size=settings.validation_size,
        augment=settings.augmented,
        seed=seed,
    )
    sets = {"test": splits.test, **splits.ood}
    if test:
        sets[test] = _all_classes(load(test, like=name, ood=()), test, name)
    return Data(
        splits.train,
        splits.train_eval,
        splits.validation,
        sets,
        splits.train_size,
        int(splits.train.cardinality()),
        splits.input_shape,
        splits.num_classes,
        splits.epochs,
    )


def _foreign(name):
    if name not in TRAINING_IMAGES:
        return name
    spec = bdl.datasets.SPECS[name]
    return dataclasses.replace(spec, test_split=spec.train_split)


def _all_classes(splits, stored, known):
    """Returns the test set with all its images.

    The test set has one class that the training data do not have. The paper of
    SWAG counts the images of this class too. They get the one label that the
    test set does not have: monkeys of STL-10 get the label of the frogs of
    CIFAR-10.
    """
    labels = SHARED_CLASSES[stored, known]
    (missing,) = set(range(len(labels))) - set(labels)
    unknown = splits.ood["held_out_classes"].map(
        lambda x: (x, tf.fill(tf.shape(x)[:1], missing))
    )
    return splits.test.concatenate(unknown)


@functools.cache
def _digits(digits, batch_size, augment, scale, seed):
    """Returns digits; augmentation shifts them by up to one pixel.

    All seeds have the same training images.
    """
    splits = bdl.datasets.load(
        "digits", classes=digits.classes, validation_size=150, seed=0
    )
    rng = np.random.default_rng(0)

    def changed(part):
        x, y = part
        x = x + digits.noise * rng.normal(size=x.shape).astype("float32")
        return x, y % 2 if digits.parity else y

    x, y = (part[: digits.size] for part in changed(splits.train))
    test, ood = changed(splits.test), splits.ood
    if scale == "smoke":
        test = tuple(part[:50] for part in test)
        ood = {name: part[:50] for name, part in ood.items()}
    # `stl10` stands for a test set from another source.
    sets = {"test": test, "stl10": _other_camera(*test), **ood}
    spec = bdl.datasets.SPECS["digits"]
    spec = dataclasses.replace(
        spec, augment=functools.partial(pad_crop, padding=1)
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
        changed(splits.validation),
        sets,
        len(x),
        -(-len(x) // batch_size),
        splits.input_shape,
        2 if digits.parity else splits.num_classes,
        epochs,
    )


def _other_camera(x, y):
    """Returns digits as from another camera: blurred, darker and noisy."""
    noise = np.random.default_rng(0).normal(size=x.shape)
    kernel = np.outer((1, 2, 1), (1, 2, 1))[..., None, None] / 16
    blurred = keras.ops.conv(x, kernel.astype("float32"), padding="same")
    shifted = 0.8 * np.asarray(blurred) + 0.5 * noise
    return shifted.astype("float32"), y
