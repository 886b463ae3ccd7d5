"""Loads a data set by its name."""

import numbers

from keras_bdl.datasets.data_splits import DataSplits
from keras_bdl.datasets.digits import load_digits
from keras_bdl.datasets.image_pipeline import ImagePipeline
from keras_bdl.datasets.images import load_images
from keras_bdl.datasets.specs import SPECS
from keras_bdl.datasets.specs import DatasetSpec


def load(
    name,
    *,
    classes=None,
    ood=("noise",),
    like: str | None = None,
    validation_size: int | None = None,
    image_size: int | None = None,
    augment: bool = True,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    seed: int = 0,
    data_dir: str | None = None,
) -> DataSplits:
    """Loads the parts of a data set, preprocessed as in the papers.

    `"digits"` comes with scikit-learn, needs no network and is small enough to
    train on while one looks: 8 x 8 pixels, as NumPy arrays. The other sets are
    read through TensorFlow Datasets, downloaded once, as `tf.data.Dataset`s.

    Nothing depends on the global seed or on the number of threads. The same
    `seed` gives the same split of the digits, and for the other sets the data
    of every epoch is a function of `seed` and the number of the epoch: give
    `fit` the callback `epochs` of the result, and a run that is killed and
    resumed sees what it would have seen. `EpochCounter` says how epochs are
    counted.

    Args:
        name: `"digits"`, or one of the image-classification sets in
            `keras_bdl.datasets.SPECS`; for any other of TensorFlow Datasets,
            a `DatasetSpec`.
        classes: The classes to train and test on, which become the labels 0,
            1, ... in this order; test images of the others are
            `ood["held_out_classes"]`. `"all"` for all of them. Defaults to
            `None`: 0 to 4 of the digits, all of any other set.
        ood: What else is out of distribution: `"noise"`, and test sets by
            name or `DatasetSpec`. They are resized and normalised like the
            data itself. Digits have only `"noise"`. Defaults to `("noise",)`.
        like: Name of the set that a model was trained on, to test how its
            knowledge transfers: images are preprocessed and classes numbered
            as there. Images of a class unknown there become
            `ood["held_out_classes"]`. Defaults to `None`.
        validation_size: How many of the last training examples, counted
            before `classes` selects, are kept for validation; 0 for none.
            Defaults to `None`: what the set provides, most often none.
        image_size: Side of the images. Defaults to `None`, that of the set.
        augment: Whether to augment the training data. Defaults to `True`.
        batch_size: Defaults to `None`, that of the set. The arrays of the
            digits have none: give it to `fit`.
        drop_remainder: Whether to leave out the last, smaller batch of every
            part, as the static shapes of a TPU require. Choose a batch size
            that divides the test set, and no test example is lost. Defaults
            to `False`.
        seed: Seed of splits, order, augmentation and noise. Defaults to `0`.
        data_dir: Where TensorFlow Datasets keeps its files. Defaults to
            `None`, its own choice.

    Returns:
        A `DataSplits`.

    Example:

    ```python
    # Digits 0 to 4 for training, 5 to 9 and noise out of distribution.
    data = keras_bdl.datasets.load("digits")
    model.fit(*data.train, validation_data=data.test)
    p = keras_bdl.predict(model, data.ood["held_out_classes"])

    # VOGN, AlexNet: 28 x 28 crops of CIFAR-10; SVHN out of distribution.
    data = keras_bdl.datasets.load(
        "cifar10", image_size=28, ood=["svhn_cropped"]
    )
    model.fit(data.train, epochs=160, callbacks=[data.epochs])

    # SWAG, from CIFAR-10 to STL-10. The paper counts monkeys as errors;
    # here they are out of distribution.
    stl10 = keras_bdl.datasets.load("stl10", like="cifar10")

    # SWAG, CIFAR 5 + 5, as in its code: vehicles and birds first.
    data = keras_bdl.datasets.load("cifar10", classes=(0, 1, 2, 8, 9))
    ```
    """
    spec = _spec("name", name)
    target = spec if like is None else _spec("like", like)
    _check_integer("validation_size", validation_size, least=0)
    _check_integer("image_size", image_size, 1, target.stored_size)
    _check_integer("batch_size", batch_size, least=1)
    _check_integer("seed", seed, 0, 2**31 - 1)
    foreign, noise = _ood_sets(ood)
    if spec.name == "digits":
        if foreign or like or image_size or batch_size or drop_remainder:
            raise ValueError(
                '`name="digits"` gives 8 x 8 arrays, to which `like`, '
                "`image_size`, `batch_size`, `drop_remainder` and any `ood` "
                f'but "noise" do not apply: leave them out. Received: '
                f"like={like!r}, image_size={image_size}, "
                f"batch_size={batch_size}, drop_remainder={drop_remainder}, "
                f"ood={ood}"
            )
        return load_digits(spec, classes, noise, validation_size or 0, seed)
    pipeline = ImagePipeline(
        target,
        image_size=image_size or target.image_size,
        batch_size=batch_size or target.batch_size,
        drop_remainder=drop_remainder,
        seed=seed,
    )
    return load_images(
        spec,
        pipeline,
        classes=classes,
        foreign=foreign,
        noise=noise,
        validation_size=validation_size,
        augment=augment,
        data_dir=data_dir,
    )


def _ood_sets(ood):
    """Splits `ood` in data sets and whether there is noise."""
    if not isinstance(ood, (list, tuple)) or "digits" in ood:
        raise ValueError(
            '`ood` must be a list of "noise" and names of data sets other '
            f"than digits. Received: ood={ood!r}"
        )
    foreign = [_spec("ood", item) for item in ood if item != "noise"]
    return foreign, "noise" in ood


def _spec(argument, name):
    if isinstance(name, DatasetSpec):
        return name
    if name not in SPECS:
        raise ValueError(
            f"`{argument}` must be one of {', '.join(SPECS)}, or a "
            "`keras_bdl.datasets.DatasetSpec` that says how to read any other "
            "image-classification set of TensorFlow Datasets. Received: "
            f"{argument}={name!r}"
        )
    return SPECS[name]


def _check_integer(argument, value, least, most=None):
    if value is None and argument != "seed":
        return
    limit = "" if most is None else f" and at most {most}"
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Integral)
        or value < least
        or (most is not None and value > most)
    ):
        raise ValueError(
            f"`{argument}` must be an integer of at least {least}{limit}. "
            f"Received: {argument}={value!r}"
        )
