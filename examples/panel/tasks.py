"""The panel: data, network and budget of each task."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import scipy.ndimage

import keras_bdl as bdl

TURN = 20.0  # degrees
NOISE = 0.5  # in standard deviations of the pixels


@dataclasses.dataclass(frozen=True)
class PanelTask:
    """One data set with a network and a number of steps."""

    train: tuple
    test: tuple
    build: Callable[..., Any]  # of `dropout` and `activation`
    steps: int
    batch_size: int
    regression: bool = False
    shifted: dict = dataclasses.field(default_factory=dict)
    unknown: np.ndarray | None = None

    @property
    def epochs(self):
        """The number of passes over the data that take `steps`, rounded."""
        in_epoch = -(-len(self.train[0]) // self.batch_size)
        return max(1, round(self.steps / in_epoch))

    @property
    def loss(self):
        if self.regression:
            return bdl.likelihoods.Gaussian()
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def shortened(task, size):
    """Returns the task with its first examples and one step."""
    train, test = (tuple(a[:size] for a in p) for p in (task.train, task.test))
    return dataclasses.replace(
        task,
        train=train,
        test=test,
        steps=1,
        shifted={name: x[:size] for name, x in task.shifted.items()},
        unknown=None if task.unknown is None else task.unknown[:size],
    )


def shifts(x, seed=0):
    """Returns images turned, and with noise."""
    turned = scipy.ndimage.rotate(
        x, TURN, (1, 2), reshape=False, order=1, mode="nearest"
    )
    noise = NOISE * x.std() * np.random.default_rng(seed).normal(size=x.shape)
    return {"turned": turned, "noise": (x + noise).astype("float32")}


def _images(name, data_dir, sizes, seed, unknown=()):
    """Returns `(x, y)` for training and for tests, and unknown images.

    The images for training are drawn with a seed.
    """
    data = bdl.datasets.load(
        name, ood=unknown, augment=False, validation_size=0, data_dir=data_dir
    )
    parts = [data.train, data.test]
    if not isinstance(data.train, tuple):
        parts = [_arrays(data.train_eval), _arrays(data.test)]
    rng = np.random.default_rng(seed)
    if name == "digits":  # has one part
        x, y = map(np.concatenate, zip(*parts, strict=True))
        order = rng.permutation(len(y))
        train, test = np.split(order, [sizes[0]])
        return (x[train], y[train]), (x[test], y[test]), None
    (x, y), (x_test, y_test) = parts
    train = rng.permutation(len(y))[: sizes[0]]
    test = x_test[: sizes[1]], y_test[: sizes[1]]
    # Standardised as the images of `name`.
    foreign = [
        np.concatenate(list(data.ood[other].as_numpy_iterator()))[:2000]
        for other in unknown
    ]
    return (x[train], y[train]), test, foreign[0] if foreign else None


def _arrays(data):
    parts = zip(*data.as_numpy_iterator(), strict=True)
    return tuple(np.concatenate(part) for part in parts)


def convolutions(
    shape, filters, units, classes, size=3, *, dropout=0.0, activation="relu"
):
    """Returns convolutions with pooling, and two dense layers."""
    x = inputs = keras.Input(shape)
    for count in filters:
        x = keras.layers.Conv2D(count, size, padding="same")(x)
        x = keras.layers.Activation(activation)(x)
        x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    if dropout:
        x = keras.layers.Dropout(dropout)(x)
    x = keras.layers.Dense(units, activation)(x)
    if dropout:
        x = keras.layers.Dropout(dropout)(x)
    return bdl.Model(inputs, keras.layers.Dense(classes)(x))


def dense(shape, units, classes, *, dropout=0.0, activation="relu"):
    """Returns two hidden layers of images as vectors."""
    x = inputs = keras.Input(shape)
    x = keras.layers.Flatten()(x)
    for _ in range(2):
        x = keras.layers.Dense(units, activation)(x)
        if dropout:
            x = keras.layers.Dropout(dropout)(x)
    return bdl.Model(inputs, keras.layers.Dense(classes)(x))


def residual(shape, filters, classes, *, dropout=0.0, activation="relu"):
    """Returns a ResNet of three stages with a block each, with BatchNorm."""
    layers = keras.layers

    def block(x, count, strides):
        y = layers.Conv2D(count, 3, strides, padding="same", use_bias=False)(x)
        y = layers.Activation(activation)(layers.BatchNormalization()(y))
        y = layers.Conv2D(count, 3, padding="same", use_bias=False)(y)
        y = layers.BatchNormalization()(y)
        if strides > 1:
            x = layers.Conv2D(count, 1, strides, use_bias=False)(x)
            x = layers.BatchNormalization()(x)
        return layers.Activation(activation)(layers.Add()([x, y]))

    inputs = keras.Input(shape)
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(inputs)
    x = layers.Activation(activation)(layers.BatchNormalization()(x))
    for stage in range(3):
        x = block(x, filters * 2**stage, 1 if stage == 0 else 2)
    x = layers.GlobalAveragePooling2D()(x)
    if dropout:
        x = layers.Dropout(dropout)(x)
    return bdl.Model(inputs, layers.Dense(classes)(x))


def _image_task(
    seed, data_dir, *, name, sizes, build, steps, batch_size, unknown=()
):
    train, test, foreign = _images(name, data_dir, sizes, seed, unknown)
    return PanelTask(
        train,
        test,
        functools.partial(build, train[0].shape[1:], classes=10),
        steps,
        batch_size,
        shifted=shifts(test[0][:2000]),
        unknown=foreign,
    )


def tabular(features, units, *, dropout=0.0, activation="relu"):
    """Returns one hidden layer, the mean and a learned noise."""
    x = inputs = keras.Input((features,))
    x = keras.layers.Dense(units, activation)(x)
    if dropout:
        x = keras.layers.Dropout(dropout)(x)
    outputs = bdl.likelihoods.LearnedStddev()(keras.layers.Dense(1)(x))
    return bdl.Model(inputs, outputs)


def table(seed, data_dir, *, name, steps):
    """One of the field's splits of a table, standardised."""
    import tensorflow_datasets as tfds

    rows = tfds.as_numpy(
        tfds.load(name, split="train", data_dir=data_dir, batch_size=-1)
    )
    x, y = rows["x"].astype("float64"), rows["y"][:, None].astype("float64")
    chosen = rows["train"][:, seed % rows["train"].shape[1]]
    x_scale = np.where(x[chosen].std(0) > 0, x[chosen].std(0), 1.0)
    x = (x - x[chosen].mean(0)) / x_scale
    y = (y - y[chosen].mean()) / y[chosen].std()
    x, y = x.astype("float32"), y.astype("float32")
    return PanelTask(
        (x[chosen], y[chosen]),
        (x[~chosen], y[~chosen]),
        functools.partial(tabular, x.shape[1], 50),
        steps,
        32,
        regression=True,
    )


def _series(seed, data_dir, *, steps):
    """A chaotic series of Mackey and Glass, seen with noise."""
    del data_dir
    rng = np.random.default_rng(seed)
    delay, length, burn = 17, 3000, 500
    z = np.full(delay + length + burn, 1.2)
    z[:delay] += 0.2 * rng.standard_normal(delay)
    for t in range(delay, len(z)):
        past = z[t - delay]
        z[t] = 0.9 * z[t - 1] + 0.2 * past / (1.0 + past**10)
    z = z[-length:]
    z = (z - z.mean()) / z.std() + 0.2 * rng.standard_normal(length)
    window, ahead = 24, 6
    starts = np.arange(length - window - ahead)
    x = z[starts[:, None] + np.arange(window)][..., None].astype("float32")
    y = z[starts + window + ahead - 1][:, None].astype("float32")
    return PanelTask(
        (x[:1500], y[:1500]),
        (x[1600:], y[1600:]),
        recurrent,
        steps,
        50,
        regression=True,
    )


def recurrent(*, dropout=0.0, activation=None):
    """Returns an LSTM that predicts a number and its noise."""
    del activation
    x = inputs = keras.Input((24, 1))
    x = keras.layers.LSTM(32)(x)
    if dropout:
        x = keras.layers.Dropout(dropout)(x)
    outputs = bdl.likelihoods.LearnedStddev()(keras.layers.Dense(1)(x))
    return bdl.Model(inputs, outputs)


PACKAGES = ("numpy", "scipy.stats", "sklearn.linear_model", "keras.layers")
LETTERS = 32


def _text(seed, data_dir, *, steps, train_size=4000, test_size=2000):
    """Windows of the documentation of a package: which package is it?"""
    del data_dir
    rng = np.random.default_rng(seed)
    parts = {"train": ([], []), "test": ([], [])}
    for label, name in enumerate(PACKAGES):
        module = importlib.import_module(name)
        docs = []
        for member in sorted(vars(module)):
            value = getattr(module, member, None)
            if callable(value) and not member.startswith("_"):
                docs.append(inspect.getdoc(value) or "")
        text = np.frombuffer(" ".join(docs).encode("ascii", "ignore"), "uint8")
        text = np.clip(text, 31, 126) - 31  # 31 stands for line breaks
        stop = int(0.7 * len(text))
        for part, (low, high), size in (
            ("train", (0, stop), train_size),
            ("test", (stop, len(text)), test_size),
        ):
            starts = rng.integers(low, high - LETTERS, size // len(PACKAGES))
            parts[part][0].append(text[starts[:, None] + np.arange(LETTERS)])
            parts[part][1].append(np.full(len(starts), label))
    train, test = (
        (np.concatenate(x).astype("int32"), np.concatenate(y))
        for x, y in parts.values()
    )
    return PanelTask(train, test, attention, steps, 50)


def attention(*, dropout=0.0, activation="relu"):
    """Returns a Transformer of one block that classifies characters."""
    layers = keras.layers
    inputs = keras.Input((LETTERS,), dtype="int32")
    x = layers.Embedding(96, 32)(inputs)
    position = layers.Embedding(LETTERS, 32)(keras.ops.arange(LETTERS)[None])
    x = x + position
    y = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(2, 16)(y, y)
    y = layers.LayerNormalization()(x)
    x = x + layers.Dense(32)(layers.Dense(64, activation)(y))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    if dropout:
        x = layers.Dropout(dropout)(x)
    return bdl.Model(inputs, layers.Dense(len(PACKAGES))(x))


_CNN = functools.partial(convolutions, filters=(24, 48), units=100)
_SMALL = functools.partial(convolutions, filters=(16, 32), units=32)
_WIDE = functools.partial(convolutions, filters=(16, 32), units=128, size=5)
_DENSE = functools.partial(dense, units=100)
_RESIDUAL = functools.partial(residual, filters=8)


def _of_images(name, sizes, build, steps, batch_size, unknown=()):
    return functools.partial(
        _image_task,
        name=name,
        sizes=sizes,
        build=build,
        steps=steps,
        batch_size=batch_size,
        unknown=unknown,
    )


# Of each, a function of a seed and the folder of TensorFlow Datasets.
TASKS = {
    "digits": _of_images("digits", (700, None), _SMALL, 500, 32),
    "mnist": _of_images("mnist", (2000, 4000), _WIDE, 500, 50),
    "fashion, dense": _of_images(
        "fashion_mnist", (10_000, 4000), _DENSE, 1500, 100, ("mnist",)
    ),
    "fashion": _of_images(
        "fashion_mnist", (10_000, 4000), _CNN, 1500, 100, ("mnist",)
    ),
    "fashion, ResNet": _of_images(
        "fashion_mnist", (5000, 4000), _RESIDUAL, 500, 100
    ),
    "series, LSTM": functools.partial(_series, steps=500),
    "text, attention": functools.partial(_text, steps=1500),
    "concrete": functools.partial(table, name="uci_concrete", steps=1500),
    "energy": functools.partial(table, name="uci_energy", steps=10_000),
    "yacht": functools.partial(table, name="uci_yacht", steps=500),
    "wine": functools.partial(table, name="uci_wine_quality_red", steps=1500),
    "kin8nm": functools.partial(table, name="uci_kin8nm", steps=10_000),
}
