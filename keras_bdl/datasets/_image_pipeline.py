"""The pipeline from stored examples to batches for a model."""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bdl._arguments import check_count
from keras_bdl.datasets._augmentation import resized_central_crop
from keras_bdl.datasets._dataset_specs import DatasetSpec
from keras_bdl.datasets._epoch_counter import EpochCounter
from keras_bdl.datasets._epoch_counter import epoch_key
from keras_bdl.datasets._epoch_counter import in_fixed_order
from keras_bdl.datasets._epoch_counter import shuffled_examples
from keras_bdl.datasets._epoch_counter import with_size
from keras_bdl.datasets._tfds_reader import TFDSReader


@dataclasses.dataclass(frozen=True)
class ImagePipeline:
    """Makes batched `tf.data.Dataset`s whose randomness depends on one seed.

    Every random decision depends only on the seed, the epoch and the position
    of the example in the files. The number of threads, the batch size, the
    global seed and earlier reads have no effect.

    Args:
        spec: Specification of the data set.
        image_size: Height and width of the images for the model.
        batch_size: Number of examples in a batch.
        drop_remainder: Whether to leave out a last, smaller batch of training
            data. Evaluation leaves out nothing.
        seed: The seed.
    """

    spec: DatasetSpec
    image_size: int
    batch_size: int
    drop_remainder: bool
    seed: int

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of one input."""
        return (self.image_size, self.image_size, self.spec.channels)

    def training(
        self,
        examples: Any,
        decode: Callable,
        *,
        epochs: EpochCounter,
        augment: bool,
        host: tf.distribute.InputContext | None = None,
        size_of_all: int | None = None,
    ) -> Any:
        """Returns shuffled batches for training, with or without augmentation.

        With `host`, the batches are those of the replicas of one host. All
        hosts together have the batches that one host would have.

        Args:
            examples: Dataset of `(position, encoded image, class)` with known
                cardinality.
            decode: Function from an encoded image to an image.
            epochs: Counter of the passes.
            augment: Whether to augment the images. A `DatasetSpec` without
                `augment` ignores this argument.
            host: The context that `distribute_datasets_from_function` passes.
                Defaults to `None`: the batches of all hosts.
            size_of_all: Number of examples of all hosts, if `examples` are
                those of one host. Defaults to `None`: they are those of all.
        """
        size = int(examples.cardinality())
        buffer_size = min(size, self.spec.shuffle_buffer)
        random = self.spec.augment if augment else None

        def one_epoch(epoch: Any) -> Any:
            key = self._key(epoch)
            shuffled = shuffled_examples(examples, buffer_size, key)
            return shuffled.map(lambda *example: (epoch, *example))

        def finish(epoch: Any, position: Any, image: Any, label: Any) -> Any:
            image = decode(image)
            if random is None:
                image = self.spec.prepare(image, self.image_size)
            else:
                key = self._key(epoch, position)
                image = random(image, key, self.image_size)
            return self._normalize(image), label

        passes = epochs.dataset().flat_map(one_epoch)
        passes = with_size(passes, size)
        whole_batches = self.drop_remainder or host is not None
        self._check_count(size_of_all or size, whole_batches)
        if host is None:
            finished = passes.map(finish, tf.data.AUTOTUNE)
            return self._batch(finished, drop_remainder=self.drop_remainder)
        each = host.get_per_replica_batch_size(self.batch_size)
        used = (size_of_all or size) // self.batch_size * self.batch_size
        if size_of_all is None:
            own = self._of_host(passes, used, each, host)
        else:
            own = passes.take(used // host.num_input_pipelines)
        finished = own.map(finish, tf.data.AUTOTUNE)
        return in_fixed_order(finished.batch(each, drop_remainder=True))

    def evaluation(
        self, examples: Any, decode: Callable, drop_remainder: bool = False
    ) -> Any:
        """Returns batches in the order of the files, without augmentation."""

        def finish(_: Any, image: Any, label: Any) -> Any:
            image = self.spec.prepare(decode(image), self.image_size)
            return self._normalize(image), label

        return self._batch(
            examples.map(finish, tf.data.AUTOTUNE), drop_remainder
        )

    def inputs(self, examples: Any, decode: Callable) -> Any:
        """Returns the inputs of `evaluation` without the labels."""
        return self.evaluation(examples, decode).map(lambda x, _: x)

    def noise(self, count: int) -> Any:
        """Returns images whose pixels are independent and uniform."""
        largest = int(self.spec.max_value)

        def draw(position: Any) -> Any:
            # Epochs count from 0, so no epoch has this key.
            return self._normalize(
                tf.random.stateless_uniform(
                    self.input_shape,
                    self._key(-1, position),
                    0,
                    largest + 1,
                    tf.int32,
                )
            )

        positions = tf.data.Dataset.range(count)
        return self._batch(positions.map(draw, tf.data.AUTOTUNE))

    def _key(self, *data: Any) -> Any:
        return epoch_key(self.seed, *data)

    def _normalize(self, image: Any) -> Any:
        x = self.spec.normalize(tf.cast(image, tf.float32))
        return tf.ensure_shape(x, self.input_shape)

    def _of_host(self, examples: Any, used: int, each: Any, host: Any) -> Any:
        """Returns the examples of the replicas of one host, in order.

        The hosts take the batches of single replicas
        in turn, so a step of all hosts has the examples of one batch.
        """
        hosts, own = host.num_input_pipelines, host.input_pipeline_id

        def is_own(position: Any, example: Any) -> bool:
            return position // each % hosts == own

        kept = examples.take(used).enumerate().filter(is_own)
        return with_size(kept.map(lambda _, example: example), used // hosts)

    def _batch(self, examples: Any, drop_remainder: Any = False) -> Any:
        self._check_count(int(examples.cardinality()), drop_remainder)
        return in_fixed_order(
            examples.batch(self.batch_size, drop_remainder=drop_remainder)
        )

    def _check_count(self, count: int, drop_remainder: Any) -> None:
        needed = self.batch_size if drop_remainder else 1
        if count < needed:
            raise ValueError(
                f"Every part of the data must have at least {needed} examples "
                "for a batch. Change `classes`, `validation_size` or "
                f"`batch_size`. Received: a part of {count} examples"
            )


def select(
    examples: Any, classes: Sequence[int], *, inside: bool = True
) -> Any:
    """Returns only the examples with a class, or only those without a class."""
    table = tf.constant(classes, tf.int32)
    examples = examples.map(
        lambda position, image, label: (
            position,
            image,
            tf.gather(table, label),
        )
    )
    if inside and np.min(classes) >= 0:
        return examples
    kept = examples.filter(lambda _, __, label: (label >= 0) == inside)
    count = kept.reduce(np.int64(0), lambda n, _: n + 1)
    return kept.apply(tf.data.experimental.assert_cardinality(count))


def decoder(
    reader: TFDSReader, stored: DatasetSpec, target: DatasetSpec
) -> Callable:
    """Returns a function that decodes an image into the format of `target`.

    The decoded image has as many channels as the images of `target`. If all
    stored images of `target` have one size, the decoded image has this size.
    """

    def decode(encoded: Any) -> Any:
        image = reader.decode(encoded)
        if stored.channels < target.channels:
            image = tf.image.grayscale_to_rgb(image)
        if stored.channels > target.channels:
            image = tf.image.rgb_to_grayscale(image)
        if target.stored_size not in (None, stored.stored_size):
            image = resized_central_crop(image, target.stored_size, 1.0)
        return image

    return decode


def padded(batches: Any, batch_size: int) -> Any:
    """Returns batches of one size, whose last batch is padded with weight 0.

    Use the result as `validation_data`, or in `evaluate`, on a TPU, where all
    batches must have one size. Metrics in `compile(weighted_metrics=...)` leave
    out the padding, while metrics in `metrics` count it. The loss of Keras
    divides by all examples of a batch, padding included.
    `keras_bdl.predict` needs no padded data: the function pads them itself.

    Args:
        batches: A `tf.data.Dataset` of batches `(x, y)`, of which only the last
            may be smaller than `batch_size`.
        batch_size: Number of examples in a batch.

    Returns:
        A `tf.data.Dataset` of batches `(x, y, weight)` with static shapes. The
        padding repeats the first example of its batch.

    Example:

    ```python
    data = keras_bdl.datasets.EpochCounter().batches((x, y), 24, seed=0)
    model.evaluate(keras_bdl.datasets.padded(data, 24), verbose=0)
    ```
    """
    check_count("batch_size", batch_size)

    def whole(x: Any, y: Any) -> Any:
        size = tf.shape(keras.tree.flatten(x)[0])[0]
        positions = tf.range(batch_size)
        is_own = positions < size
        rows = tf.where(is_own, positions, 0)

        def extended(part: Any) -> Any:
            taken = tf.gather(part, rows)
            return tf.ensure_shape(taken, (batch_size, *part.shape[1:]))

        x, y = keras.tree.map_structure(extended, (x, y))
        return x, y, tf.cast(is_own, "float32")

    return batches.map(whole)
