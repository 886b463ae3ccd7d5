import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.datasets import EpochCounter
from keras_bdl.datasets._augmentation import pad_crop
from keras_bdl.datasets._dataset_specs import DatasetSpec
from keras_bdl.datasets._image_pipeline import ImagePipeline
from keras_bdl.datasets._image_pipeline import select
from tests.helpers import assert_moment

N = 22
SPEC = DatasetSpec(
    name="squares",
    image_size=4,
    stored_size=4,
    mean=(0.5,),
    stddev=(0.25,),
    augment=lambda image, key, size: pad_crop(image, key, size, 2),
)


def make(seed=0, batch_size=4, drop_remainder=False):
    return ImagePipeline(SPEC, 4, batch_size, drop_remainder, seed)


def examples():
    rows = tf.data.Dataset.range(N)
    return rows.map(
        lambda i: (i, tf.fill((4, 4, 1), i + 1), tf.cast(i, tf.int32))
    )


def training(epochs, augment=True, **options):
    return make(**options).training(
        examples(), lambda image: image, epochs=epochs, augment=augment
    )


def epoch(number, **options):
    """Returns all inputs and labels of one epoch, in order."""
    epochs = EpochCounter()
    data = training(epochs, **options)
    epochs.next_epoch = number
    x, y = zip(*data, strict=True)
    return np.concatenate(x), np.concatenate(y)


def test_epoch_is_a_function_of_seed_and_number():
    tf.random.set_seed(1)
    x, y = epoch(3)
    tf.random.set_seed(2)
    again = epoch(3, batch_size=7)
    np.testing.assert_array_equal(x, again[0])
    np.testing.assert_array_equal(y, again[1])
    for other in (epoch(2), epoch(3, seed=1)):
        assert np.any(y != other[1])
        order = np.argsort(y), np.argsort(other[1])
        assert np.any(x[order[0]] != other[0][order[1]])


def test_every_example_has_its_own_crop():
    x, _ = epoch(0)
    places = {(image > x.min()).tobytes() for image in x}
    assert len(places) > 5


def test_passes_are_successive_epochs():
    data = training(EpochCounter())
    for number in range(2):
        y = np.concatenate([y for _, y in data])
        np.testing.assert_array_equal(y, epoch(number)[1])


def test_skipped_batches_do_not_change_later_batches():
    epochs = EpochCounter()
    data = training(epochs).skip(2)
    y = np.concatenate([y for _, y in data])
    np.testing.assert_array_equal(y, epoch(0)[1][8:])


def test_an_epoch_holds_every_example_once():
    _, y = epoch(5)
    np.testing.assert_array_equal(np.sort(y), np.arange(N))
    assert np.any(y != np.arange(N))


def test_global_seed_does_not_change():
    tf.random.set_seed(5)
    expected = tf.random.uniform(())
    tf.random.set_seed(5)
    epoch(0)
    assert tf.random.uniform(()) == expected


def test_without_augmentation_pixels_are_only_normalised():
    x, y = epoch(0, augment=False)
    value = ((y + 1) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(x, np.tile(value, (1, 4, 4, 1)).T, atol=1e-5)


def test_padding_is_black_before_it_is_normalised():
    x, _ = epoch(0)
    np.testing.assert_allclose(x.min(), (0 - 0.5) / 0.25, atol=1e-6)


def test_evaluation_keeps_the_order():
    data = make().evaluation(examples(), lambda image: image)
    y = np.concatenate([y for _, y in data])
    np.testing.assert_array_equal(y, np.arange(N))


def test_the_number_of_batches_is_known():
    assert len(training(EpochCounter())) == 6
    whole = training(EpochCounter(), drop_remainder=True)
    assert len(whole) == 5 == len(list(whole))
    assert whole.element_spec[0].shape == (4, 4, 4, 1)


def test_replicas_share_one_epoch(mirrored):
    epochs = EpochCounter()
    with mirrored.scope():
        data = mirrored.experimental_distribute_dataset(training(epochs))
    for number in range(2):
        y = [
            np.concatenate(mirrored.experimental_local_results(batch[1]))
            for batch in data
        ]
        np.testing.assert_array_equal(np.concatenate(y), epoch(number)[1])


def test_noise_is_uniform_and_repeatable():
    first, again = (np.concatenate(list(make().noise(N))) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    pixels = (first * 0.25 + 0.5) * 255
    variance = (256**2 - 1) / 12
    assert_moment(pixels.mean(), 127.5, np.sqrt(variance / pixels.size))
    assert_moment(pixels.var(), variance, variance * np.sqrt(0.8 / first.size))


def test_selected_examples_are_renumbered_and_counted():
    classes = [1, -1] * (N // 2 - 1) + [0, 0]
    kept = select(examples(), classes)
    left_out = select(examples(), classes, inside=False)
    assert int(kept.cardinality()) == N // 2 + 1
    positions, _, labels = zip(*kept, strict=True)
    np.testing.assert_array_equal(positions, [*range(0, N, 2), N - 1])
    np.testing.assert_array_equal(labels, [1] * (N // 2 - 1) + [0, 0])
    assert [int(p) for p, _, _ in left_out] == list(range(1, N - 2, 2))


def test_part_without_a_batch_raises_an_error():
    with pytest.raises(ValueError, match="at least 23 examples.*part of 22"):
        training(EpochCounter(), batch_size=23, drop_remainder=True)
