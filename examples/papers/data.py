"""The data of the papers at each scale."""

import contextlib
import dataclasses
import functools

import digits
import tensorflow as tf
from training_data import Data

import keras_bdl as bdl
from keras_bdl.extend import SHARED_CLASSES
from keras_bdl.extend import square_crop_flip

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
    known = used(name, scale), settings.batch_size, settings.augmented
    if scale == "medium":
        return _of_mnist(*known, seed, data_dir)
    return digits.of_scikit_learn(*known, scale, seed)


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
    known = digits.MNIST if scale == "medium" else digits.DIGITS
    if name not in known:
        raise SystemExit(f"There is no data {name!r}, only {', '.join(known)}.")
    found = known[name]
    if scale != "smoke":
        return found
    return found._replace(classes=found.classes[:5], size=64)


_of_mnist = missing_data_is_said()(digits.of_mnist)


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
