"""`load`: the parts of a data set, by its name."""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._arguments import did_you_mean
from keras_bdl.datasets._dataset_specs import SPECS
from keras_bdl.datasets._dataset_specs import DatasetSpec
from keras_bdl.datasets._dataset_specs import class_of_each_label
from keras_bdl.datasets._dataset_specs import renumber
from keras_bdl.datasets._dataset_specs import selected_classes
from keras_bdl.datasets._epoch_counter import EpochCounter
from keras_bdl.datasets._image_pipeline import ImagePipeline
from keras_bdl.datasets._image_pipeline import decoder
from keras_bdl.datasets._image_pipeline import select
from keras_bdl.datasets._tfds_reader import TFDSReader
from keras_bdl.datasets._tfds_reader import corrupted_name


@dataclasses.dataclass(frozen=True, eq=False)
class DataSplits:
    """The parts of one data set, all preprocessed in the same way.

    `keras_bdl.datasets.load` returns this object. A part is either a pair of
    NumPy arrays `(x, y)` or a batched `tf.data.Dataset` of such pairs: `x` is
    float32 `(n, size, size, channels)`, `y` is int32 `(n,)`.

    Attributes:
        name: Name of the data set.
        train: Training data, or `None` for a set with only test images. A
            `tf.data.Dataset` is shuffled and augmented differently in every
            pass, see `epochs`.
        train_eval: The training examples in a fixed order, without
            augmentation. Use `train_eval` for statistics over the training
            data, such as those of BatchNorm.
        validation: Examples taken out of `train`, or `None`.
        test: Test data.
        ood: Dict from a name to out-of-distribution inputs without labels.
        class_names: Name of the class for each value of `y`.
        input_shape: Shape of one input, for `keras.Input`.
        train_size: N, the exact number of training examples, even if the last
            batch of `train` is smaller. Pass N as `dataset_size`.
        epochs: An `EpochCounter`, or `None` for arrays and without `train`.
            Pass it to `fit` as a callback to make the data of an epoch a
            function of (seed, epoch).
        train_on_host: Function for `strategy.distribute_datasets_from_function`
            that returns the batches for the replicas of one host of a TPU pod,
            or `None` for arrays and without `train`. All hosts together see the
            batches of `train`, without a last, smaller batch. If the shuffle
            buffer of the set is smaller than the set, each host reads and
            shuffles its own part of the files instead.
    """

    name: str
    train: Any = dataclasses.field(repr=False)
    train_eval: Any = dataclasses.field(repr=False)
    validation: Any = dataclasses.field(repr=False)
    test: Any = dataclasses.field(repr=False)
    ood: dict[str, Any] = dataclasses.field(repr=False)
    class_names: tuple[str, ...] = dataclasses.field(repr=False)
    input_shape: tuple[int, int, int]
    train_size: int
    epochs: EpochCounter | None = dataclasses.field(default=None, repr=False)
    train_on_host: Callable | None = dataclasses.field(default=None, repr=False)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


def load(
    name: str | DatasetSpec,
    *,
    classes: str | Iterable[int] | None = None,
    ood: Sequence[str | DatasetSpec] = ("noise",),
    like: str | DatasetSpec | None = None,
    validation_size: int | None = None,
    image_size: int | None = None,
    augment: bool = True,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    seed: int = 0,
    data_dir: str | None = None,
) -> DataSplits:
    """Loads the parts of a data set, preprocessed as in published papers.

    Use `"digits"` for first experiments: the set comes with scikit-learn, needs
    no download and is small. The function returns NumPy arrays of 8 x 8 pixels.
    For all other sets, the function returns `tf.data.Dataset`s. TensorFlow
    Datasets downloads each set once.

    The result depends neither on the global seed nor on the number of threads.
    The same `seed` gives the same split of the digits. For the other sets, the
    data of every epoch are a function of `seed` and the number of the epoch.
    Pass the attribute `epochs` of the result to `fit` as a callback, so that a
    resumed run reads the same data as a run without interruption. See
    `EpochCounter`.

    Args:
        name: `"digits"`, a name in `keras_bdl.datasets.SPECS`, or a
            `DatasetSpec` for any other image-classification set of TensorFlow
            Datasets. For `"cifar10_corrupted"` and `"imagenet2012_corrupted"`,
            the corruption and its severity from 1 to 5 follow a slash:
            `"cifar10_corrupted/fog_3"`. Both sets have only test images:
            `train` is `None`.
        classes: Classes for training and test, which become the labels 0, 1,
            ... in this order. Test images of the other classes become
            `ood["held_out_classes"]`. `"all"` selects all classes. Defaults to
            `None`: 0 to 4 of the digits, and all classes of any other set.
        ood: List of out-of-distribution inputs: `"noise"`, and other data sets
            by name or `DatasetSpec`, of which the test parts are used. The
            function resizes and normalises their images like those of the data
            set itself. With the digits, only `"noise"` is possible. Defaults to
            `("noise",)`.
        like: Name of the set that a model was trained on, to test this model on
            the set `name`. Images are preprocessed and classes are numbered as
            in the set `like`. Images of other classes become
            `ood["held_out_classes"]`. Defaults to `None`.
        validation_size: Number of training examples for validation. The
            function takes the last examples of all classes, and then selects
            `classes`. Defaults to `None`, the validation part of the set if the
            set has one.
        image_size: Height and width of the images. Defaults to `None`, the
            size in the `DatasetSpec` of the set.
        augment: Whether to augment the training data. Defaults to `True`.
        batch_size: Number of examples in a batch. Arrays of digits have no
            batches: pass `batch_size` to `fit`. Defaults to `None`, the number
            in the `DatasetSpec` of the set.
        drop_remainder: Whether to leave out the last, smaller batch of `train`
            and `train_eval`, for static shapes on a TPU. All other parts keep
            every example: `keras_bdl.predict` pads their last batch, and so
            does `keras_bdl.datasets.padded` for `evaluate` and `fit`. Defaults
            to `False`.
        seed: Seed of splits, order, augmentation and noise. Defaults to `0`.
        data_dir: Directory of TensorFlow Datasets. Defaults to `None`, the
            default directory of TensorFlow Datasets.

    Returns:
        A `DataSplits`.

    Example:

    ```python
    # Digits 0 to 4 for training, 5 to 9 and noise out of distribution.
    data = keras_bdl.datasets.load("digits")
    digits = keras_bdl.applications.LeNet5((8, 8, 1), padding="same")
    digits.compile("adam", loss)
    digits.fit(*data.train, validation_data=data.test)
    p = keras_bdl.predict(digits, data.ood["held_out_classes"])
    ```

    The other sets are downloaded:

        # VOGN, AlexNet: 28 x 28 crops of CIFAR-10. SVHN is out of
        # distribution.
        data = keras_bdl.datasets.load(
            "cifar10", image_size=28, ood=["svhn_cropped"]
        )
        model.fit(data.train, epochs=160, callbacks=[data.epochs])

        # SWAG, from CIFAR-10 to STL-10. The paper counts monkeys as errors.
        # Here they are out of distribution.
        stl10 = keras_bdl.datasets.load("stl10", like="cifar10")

        # The test images of CIFAR-10 in fog, for `keras_bdl.evaluate`.
        fog = [
            keras_bdl.datasets.load(f"cifar10_corrupted/fog_{s}").test
            for s in range(1, 6)
        ]
        fog = [keras_bdl.predict(model, x) for x in fog]
        report = keras_bdl.evaluate(prediction, shift={"fog": fog})

        # SWAG, CIFAR 5 + 5, as in its code: vehicles and birds first.
        data = keras_bdl.datasets.load("cifar10", classes=(0, 1, 2, 8, 9))
    """
    spec = _spec("name", name)
    target = spec if like is None else _spec("like", like)
    if validation_size is not None:
        check_count("validation_size", validation_size, at_least=0)
    if image_size is not None:
        check_number(
            "image_size",
            image_size,
            at_least=1,
            at_most=target.stored_size,
            integer=True,
        )
    if batch_size is not None:
        check_count("batch_size", batch_size)
    check_number("seed", seed, at_least=0, below=2**31, integer=True)
    check_bool("augment", augment)
    check_bool("drop_remainder", drop_remainder)
    foreign, noise = _ood_sets(ood)
    if spec.name == "digits":
        if foreign or like or image_size or batch_size or drop_remainder:
            raise ValueError(
                '`name="digits"` returns arrays of 8 x 8 pixels. Leave out '
                "`like`, `image_size`, `batch_size`, `drop_remainder` and any "
                '`ood` but "noise". Received: '
                f"like={like!r}, image_size={image_size}, "
                f"batch_size={batch_size}, drop_remainder={drop_remainder}, "
                f"ood={ood}"
            )
        return load_digits(
            spec,
            classes=classes,
            noise=noise,
            validation_size=validation_size or 0,
            seed=seed,
        )
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


def _ood_sets(ood: Any) -> Any:
    """Returns the data sets in `ood`, and whether `ood` contains noise."""
    if not isinstance(ood, (list, tuple)) or "digits" in ood:
        raise ValueError(
            '`ood` must be a list of "noise" and names of data sets other '
            f"than digits. Received: ood={ood!r}"
        )
    foreign = [_spec("ood", item) for item in ood if item != "noise"]
    return foreign, "noise" in ood


def _spec(argument: str, name: str | DatasetSpec) -> DatasetSpec:
    if isinstance(name, DatasetSpec):
        return name
    base, _, config = str(name).partition("/")
    if base.endswith("_corrupted") and base in SPECS:
        return dataclasses.replace(
            SPECS[base], name=corrupted_name(argument, base, config)
        )
    if name not in SPECS:
        raise ValueError(
            f"`{argument}` must be one of {', '.join(SPECS)}, or a "
            "`keras_bdl.extend.DatasetSpec` of another image-classification "
            f"set of TensorFlow Datasets. {did_you_mean(base, SPECS)}"
            f"Received: {argument}={name!r}"
        )
    return SPECS[name]


TEST_FRACTION = 1 / 3


def load_digits(
    spec: DatasetSpec,
    *,
    classes: Any,
    noise: bool,
    validation_size: int,
    seed: int,
) -> DataSplits:
    """Splits the 1797 digits of scikit-learn."""
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

    def known(rows: Any) -> Any:
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


def load_images(
    spec: DatasetSpec,
    pipeline: ImagePipeline,
    *,
    classes: Any,
    foreign: list[DatasetSpec],
    noise: bool,
    validation_size: int | None,
    augment: bool,
    data_dir: str | None,
) -> DataSplits:
    """Builds the parts of one data set."""
    target = pipeline.spec
    reader = TFDSReader(spec.name, data_dir)
    labels = class_of_each_label(spec, target, len(reader.label_names))
    decode = decoder(reader, spec, target)
    train_split, validation_split = _train_splits(spec, validation_size)
    names = target.class_names or reader.label_names
    selected = selected_classes(classes, target.classes, len(names))
    numbers = renumber(labels, selected)

    def evaluation(split: str) -> Any:
        examples = select(reader.examples(split), numbers)
        return pipeline.evaluation(examples, decode)

    def training_examples() -> Any:
        examples = select(reader.examples(train_split), numbers)
        if int(examples.cardinality()) <= target.shuffle_buffer:
            return examples.cache()  # all in memory anyway
        return examples

    def training(examples: Any, host: Any = None, of_all: Any = None) -> Any:
        return pipeline.training(
            examples,
            decode,
            epochs=epochs,
            augment=augment,
            host=host,
            size_of_all=of_all,
        )

    epochs: Any = None
    train = train_eval = train_on_host = None
    train_size = 0
    if train_split is not None:
        examples = training_examples()
        train_size = int(examples.cardinality())
        epochs = EpochCounter()
        train = training(examples)
        train_eval = pipeline.evaluation(
            examples, decode, pipeline.drop_remainder
        )

        def train_on_host(context: Any) -> Any:
            # A host of a pod reads its files itself. A selection of classes
            # leaves a number of examples that only the labels tell.
            if train_size <= target.shuffle_buffer or min(numbers) < 0:
                return training(training_examples(), context)
            part = context.input_pipeline_id, context.num_input_pipelines
            own = select(reader.examples(train_split, part), numbers)
            return training(own, context, train_size)

    stored_test = reader.examples(spec.test_split)
    ood = {}
    if min(numbers) < 0:
        held_out = select(stored_test, numbers, inside=False)
        ood["held_out_classes"] = pipeline.inputs(held_out, decode)
    for other in foreign:
        ood[other.name] = _foreign_inputs(other, pipeline, data_dir)
    if noise:
        ood["noise"] = pipeline.noise(int(stored_test.cardinality()))
    return DataSplits(
        name=spec.name,
        train=train,
        train_eval=train_eval,
        validation=evaluation(validation_split) if validation_split else None,
        test=evaluation(spec.test_split),
        ood=ood,
        class_names=tuple(names[c] for c in selected),
        input_shape=pipeline.input_shape,
        train_size=train_size,
        epochs=epochs,
        train_on_host=train_on_host,
    )


def _train_splits(spec: Any, validation_size: Any) -> Any:
    """Returns the splits for training and validation, or `None`."""
    if spec.train_split is None and validation_size:
        raise ValueError(
            f"`validation_size` must be `None` for `{spec.name}`, which has "
            "only test images. "
            f"Received: validation_size={validation_size}"
        )
    if validation_size is None:
        return spec.train_split, spec.validation_split
    if validation_size == 0:
        return spec.train_split, None
    return (
        f"{spec.train_split}[:-{validation_size}]",
        f"{spec.train_split}[-{validation_size}:]",
    )


def _foreign_inputs(spec: Any, pipeline: Any, data_dir: Any) -> Any:
    reader = TFDSReader(spec.name, data_dir)
    return pipeline.inputs(
        reader.examples(spec.test_split), decoder(reader, spec, pipeline.spec)
    )
