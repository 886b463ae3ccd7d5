"""From stored examples to batches for a model."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bdl.datasets.specs import DatasetSpec


@dataclasses.dataclass(frozen=True)
class ImagePipeline:
    """Makes batched `tf.data.Dataset`s whose content follows from a seed.

    The key of a random decision is folded from the seed, the epoch and the
    position of the example in the files: neither the number of threads, nor
    the batch size, nor the global seed, nor what was read before matters.

    Args:
        spec: What to do with an image.
        image_size: Side of the square that the model sees.
        batch_size: Examples in a batch.
        drop_remainder: Whether a last, smaller batch is left out.
        seed: The seed.
    """

    spec: DatasetSpec
    image_size: int
    batch_size: int
    drop_remainder: bool
    seed: int

    @property
    def input_shape(self):
        """Shape of one input."""
        return (self.image_size, self.image_size, self.spec.channels)

    def training(self, examples, decode, epochs, augment: bool):
        """Shuffled, and augmented where the set has an augmentation.

        Args:
            examples: `(position, encoded image, class)` of known cardinality.
            decode: Makes an image of an encoded one.
            epochs: An `EpochCounter`.
            augment: Whether to augment.
        """
        size = int(examples.cardinality())
        buffer_size = min(size, self.spec.shuffle_buffer)
        random = self.spec.augment if augment else None

        def one_epoch(epoch):
            # A shuffle mixes the global seed into its own. This sets it for
            # the graph being traced, and for nothing outside.
            tf.random.set_seed(1)
            order = tf.random.stateless_uniform(
                (), self._key(epoch), None, None, tf.int64
            )
            shuffled = examples.shuffle(
                buffer_size, seed=order, reshuffle_each_iteration=False
            )
            return shuffled.map(lambda *example: (epoch, *example))

        def finish(epoch, position, image, label):
            image = decode(image)
            if random is None:
                image = self.spec.prepare(image, self.image_size)
            else:
                key = self._key(epoch, position)
                image = random(image, key, self.image_size)
            return self._normalize(image), label

        passes = epochs.dataset().flat_map(one_epoch)
        passes = passes.apply(tf.data.experimental.assert_cardinality(size))
        return self._batch(passes.map(finish, tf.data.AUTOTUNE))

    def evaluation(self, examples, decode):
        """In the order of the files, without augmentation."""

        def finish(_, image, label):
            image = self.spec.prepare(decode(image), self.image_size)
            return self._normalize(image), label

        return self._batch(examples.map(finish, tf.data.AUTOTUNE))

    def inputs(self, examples, decode):
        """Like `evaluation`, without the labels."""
        return self.evaluation(examples, decode).map(lambda x, _: x)

    def noise(self, count: int):
        """Images whose pixels are independent and uniform."""
        largest = int(self.spec.max_value)

        def draw(position):
            # Epochs count from 0, so that this key is free.
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

    def _key(self, *data):
        key = tf.constant((self.seed, 0), tf.int32)
        for number in data:
            key = tf.random.fold_in(key, number)
        return key

    def _normalize(self, image):
        x = self.spec.normalize(tf.cast(image, tf.float32))
        return tf.ensure_shape(x, self.input_shape)

    def _batch(self, examples):
        count = int(examples.cardinality())
        needed = self.batch_size if self.drop_remainder else 1
        if count < needed:
            raise ValueError(
                f"Every part of the data must have at least {needed} examples "
                "to make a batch: choose `classes`, `validation_size` and "
                f"`batch_size` accordingly. Received: a part of {count}"
            )
        options = tf.data.Options()
        options.deterministic = True
        # By files, workers would disagree about the order.
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.DATA
        )
        batches = examples.batch(
            self.batch_size, drop_remainder=self.drop_remainder
        )
        return batches.with_options(options).prefetch(tf.data.AUTOTUNE)


def select(examples, classes, inside: bool = True):
    """Keeps the examples that belong to a class, or those that do not.

    Args:
        examples: `(position, encoded image, stored label)`.
        classes: The class of each stored label, -1 where it has none.
        inside: Which ones to keep. Defaults to `True`.

    Returns:
        `(position, encoded image, class)` of known cardinality.
    """
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
