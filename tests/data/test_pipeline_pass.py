import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_bdl._data._dataset_size import count_examples
from keras_bdl._data._pipeline_pass import pass_over

N = 130


def same(x):
    return x


def examples(size=N, start=0):
    """A data set whose examples are numbers, to see which ones come."""
    rows = np.arange(start, start + size, dtype="int64")[:, np.newaxis]
    return tf.data.Dataset.from_tensor_slices(rows)


def flat(data):
    return data.flat_map(lambda x: tf.data.Dataset.from_tensors(x))


# Finite pipelines whose steps prove the number.
PROVEN = {
    "batch": lambda: examples().batch(32),
    "a small rest": lambda: examples().batch(100),
    "one batch": lambda: examples().batch(500),
    "fixed batches": lambda: examples(128).batch(32, drop_remainder=True),
    "a dropped rest": lambda: examples().batch(32, drop_remainder=True),
    "batches of a source": lambda: tf.data.Dataset.from_tensor_slices(
        np.arange(24).reshape(4, 6, 1)
    ),
    "parallel": lambda: (
        examples().map(same, 2).batch(32, num_parallel_calls=2).prefetch(1)
    ),
    "cache, options": lambda: (
        examples().cache().batch(7).with_options(tf.data.Options())
    ),
    "padded batch": lambda: examples().padded_batch(32),
    "repeat, batch": lambda: examples().repeat(3).batch(32),
    "batch, repeat": lambda: examples().batch(32).repeat(3),
    "repeat twice": lambda: examples().repeat(2).shuffle(9).repeat(2).batch(32),
    "shuffle, repeat": lambda: examples().shuffle(N).repeat(3).batch(32),
    "repeat, take": lambda: examples().repeat(4).take(200).batch(32),
    "repeat, take less": lambda: examples().repeat(4).take(50).batch(32),
    "take, skip": lambda: examples().take(100).skip(30).batch(32),
    "take more": lambda: examples().take(1000).batch(32),
    "take of batches": lambda: examples().batch(32).take(2),
    "last batches": lambda: examples().batch(32).skip(3),
    "skip, repeat": lambda: examples().batch(32).skip(3).repeat(2),
    "batch, repeat, take": lambda: examples().batch(32).repeat(3).take(7),
    "batch, repeat, skip": lambda: examples().batch(32).repeat(3).skip(6),
    "middle of a concatenation": lambda: (
        examples(10).batch(4).concatenate(examples(9, 10).batch(4)).skip(1)
    ),
    "concatenated": lambda: examples().concatenate(examples(20, N)).batch(32),
    "concatenated to itself": lambda: (lambda d: d.concatenate(d))(
        examples().batch(32)
    ),
    "zip": lambda: tf.data.Dataset.zip(
        (examples(), tf.data.Dataset.counter())
    ).batch(32),
    "enumerate": lambda: examples().repeat(3).enumerate().map(
        lambda _, x: x
    ).batch(32),
    "shard": lambda: examples().shard(4, 1).batch(32),
    "unbatch": lambda: examples().batch(32).unbatch().batch(50),
    "rebatch": lambda: examples().batch(32).rebatch(50),
    "shuffled batches": lambda: examples().batch(32).shuffle(9),
    "asserted": lambda: flat(examples()).apply(
        tf.data.experimental.assert_cardinality(N)
    ).batch(32),
}  # fmt: skip


def brute_force(data, passes=1):
    """Reads the data, and returns the set of all examples."""
    seen = set()
    for _ in range(passes):
        for element in data:
            first = element[0] if isinstance(element, tuple) else element
            seen.update(np.ravel(first).tolist())
    return seen


@pytest.mark.parametrize("kind", PROVEN)
def test_steps_prove_the_number_of_different_examples(kind):
    count = count_examples(PROVEN[kind]())
    assert count.exact
    assert count.examples == len(brute_force(PROVEN[kind]()))


def test_a_new_shuffle_leaves_out_other_examples_in_each_pass():
    data = examples().shuffle(N).batch(32, drop_remainder=True)
    assert count_examples(data).examples == N == len(brute_force(data, 50))
    data = examples().shuffle(N, reshuffle_each_iteration=False)
    data = data.batch(32, drop_remainder=True)
    assert count_examples(data).examples == 128 == len(brute_force(data, 50))


@pytest.mark.parametrize(
    "data",
    [
        lambda: examples().repeat().batch(32),
        lambda: examples().batch(32).repeat(),
        lambda: examples().shuffle(9).repeat().batch(32, drop_remainder=True),
        lambda: examples().batch(32).repeat().skip(2).prefetch(1),
    ],
)
@pytest.mark.parametrize("steps", [None, 2, 1000])
def test_endless_repeats_of_finite_data_are_counted_once(data, steps):
    count = count_examples(data(), steps_per_epoch=steps)
    assert count.exact and not count.endless
    seen = set()
    for batch in itertools.islice(data(), 30):
        seen.update(np.ravel(batch).tolist())
    assert count.examples == len(seen) == N


@pytest.mark.parametrize(
    "kind", ["batch", "repeat, batch", "batch, repeat, take", "last batches"]
)
def test_a_function_of_batches_is_no_proof_but_has_the_right_estimate(kind):
    data = PROVEN[kind]()
    count = count_examples(data.map(same))
    assert not count.exact
    assert count.examples == len(brute_force(data))
    sizes = [len(batch) for batch in data]
    for steps in range(1, len(sizes) + 1):
        assert count.expected(steps) == sum(sizes[:steps])


def test_removed_examples_leave_an_upper_bound():
    for data in (
        examples().filter(lambda x: x[0] < 50).batch(32),
        examples().take_while(lambda x: x[0] < 50).batch(32),
    ):
        count = count_examples(data)
        assert (count.examples, count.exact, count.batches) == (N, False, None)
        assert count.corrected(50, 2) == 50


def test_the_walk_reads_no_data():
    read = []
    data = examples().map(
        lambda x: tf.py_function(lambda: read.append(1) or 0, [], tf.int32)
    )
    assert pass_over(data.shuffle(9).batch(32)).distinct == N
    assert not read


def test_a_pipeline_of_hundreds_of_steps_is_estimated():
    data = examples(2).batch(2)
    for number in range(1, 500):
        data = data.concatenate(examples(2, 2 * number).batch(2))
    count = count_examples(data)
    assert (count.examples, count.exact) == (1000, False)
