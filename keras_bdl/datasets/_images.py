"""Image data sets that TensorFlow Datasets provides."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bdl.datasets._augmentation import resized_central_crop
from keras_bdl.datasets._class_selection import class_of_each_label
from keras_bdl.datasets._class_selection import renumber
from keras_bdl.datasets._class_selection import selected_classes
from keras_bdl.datasets._data_splits import DataSplits
from keras_bdl.datasets._epoch_counter import EpochCounter
from keras_bdl.datasets._image_pipeline import ImagePipeline
from keras_bdl.datasets._image_pipeline import select
from keras_bdl.datasets._specs import DatasetSpec
from keras_bdl.datasets._tfds_reader import TFDSReader


def decoder(
    reader: TFDSReader, stored: DatasetSpec, target: DatasetSpec
) -> Callable:
    """Returns a function that decodes an image into the format of `target`.

    The decoded image has as many channels as the images of `target`. If all
    stored images of `target` have one size, the decoded image has this size.

    Args:
        reader: Reader of the stored data set.
        stored: Specification of the stored data set.
        target: Specification of the data set that a model was trained on.
    """

    def decode(encoded):
        image = reader.decode(encoded)
        if stored.channels < target.channels:
            image = tf.image.grayscale_to_rgb(image)
        if stored.channels > target.channels:
            image = tf.image.rgb_to_grayscale(image)
        if target.stored_size not in (None, stored.stored_size):
            image = resized_central_crop(image, target.stored_size, 1.0)
        return image

    return decode


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
    """Builds the parts of one data set.

    Args:
        spec: Specification of the stored data set.
        pipeline: Pipeline of the data set that a model was trained on, which
            may differ from `spec`. The pipeline defines format and labels.
        classes: Argument of `keras_bdl.datasets.load`.
        foreign: Specifications of the out-of-distribution data sets.
        noise: Whether to add noise as out-of-distribution inputs.
        validation_size: Argument of `keras_bdl.datasets.load`.
        augment: Whether to augment the training data.
        data_dir: Directory of the files.

    Returns:
        `DataSplits` of `tf.data.Dataset`s.
    """
    target = pipeline.spec
    reader = TFDSReader(spec.name, data_dir)
    labels = class_of_each_label(spec, target, len(reader.label_names))
    decode = decoder(reader, spec, target)
    train_split, validation_split = _train_splits(spec, validation_size)
    names = target.class_names or reader.label_names
    selected = selected_classes(classes, target.classes, len(names))
    numbers = renumber(labels, selected)

    def evaluation(split):
        examples = select(reader.examples(split), numbers)
        return pipeline.evaluation(examples, decode)

    def training_examples():
        examples = select(reader.examples(train_split), numbers)
        if int(examples.cardinality()) <= target.shuffle_buffer:
            return examples.cache()  # all in memory anyway
        return examples

    def training(examples, host=None):
        return pipeline.training(
            examples, decode, epochs=epochs, augment=augment, host=host
        )

    epochs = train = train_eval = train_on_host = None
    train_size = 0
    if train_split is not None:
        examples = training_examples()
        train_size = int(examples.cardinality())
        epochs = EpochCounter()
        train = training(examples)
        train_eval = pipeline.evaluation(
            examples, decode, pipeline.drop_remainder
        )

        def train_on_host(context):
            # A host of a pod reads its files itself.
            return training(training_examples(), context)

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


def _train_splits(spec, validation_size):
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


def _foreign_inputs(spec, pipeline, data_dir):
    reader = TFDSReader(spec.name, data_dir)
    return pipeline.inputs(
        reader.examples(spec.test_split),
        decoder(reader, spec, pipeline.spec),
    )
