"""Handwritten digits of scikit-learn, which need no download."""

from typing import Any

import numpy as np

from keras_bdl.datasets._class_selection import renumber
from keras_bdl.datasets._class_selection import selected_classes
from keras_bdl.datasets._data_splits import DataSplits
from keras_bdl.datasets._specs import DatasetSpec

TEST_FRACTION = 1 / 3


def load_digits(
    spec: DatasetSpec,
    *,
    classes: Any,
    noise: bool,
    validation_size: int,
    seed: int,
) -> DataSplits:
    """Splits the 1797 digits of scikit-learn.

    Args:
        spec: Specification of the data set.
        classes: Argument of `keras_bdl.datasets.load`.
        noise: Whether to make images of noise.
        validation_size: Number of training examples for validation.
        seed: Seed of the split and of the noise.

    Returns:
        `DataSplits` of arrays.
    """
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    names = spec.class_names or ()
    selected = selected_classes(classes, spec.classes, len(names))
    numbers = renumber(range(len(names)), selected)
    stored = datasets.load_digits()
    x = spec.normalize(stored.images[..., None].astype("float32"))
    y = np.asarray(numbers, "int32")[stored.target]
    train, test = train_test_split(
        np.arange(len(y)),
        test_size=TEST_FRACTION,
        stratify=stored.target,
        random_state=seed,
    )
    if validation_size >= len(train):
        raise ValueError(
            f"`validation_size` must be smaller than the {len(train)} training "
            f"examples. Received: validation_size={validation_size}"
        )
    train, validation = np.split(train, [len(train) - validation_size])

    def known(rows):
        rows = rows[y[rows] >= 0]
        return x[rows], y[rows]

    ood = {}
    if len(selected) < len(names):
        ood["held_out_classes"] = x[test[y[test] < 0]]
    if noise:
        pixels = np.random.default_rng(seed).integers(
            0, int(spec.max_value) + 1, size=(len(test), *x.shape[1:])
        )
        ood["noise"] = spec.normalize(pixels.astype("float32"))
    data = known(train)
    return DataSplits(
        name=spec.name,
        train=data,
        train_eval=data,
        validation=known(validation) if validation_size else None,
        test=known(test),
        ood=ood,
        class_names=tuple(names[c] for c in selected),
        input_shape=x.shape[1:],
        train_size=len(data[0]),
    )
