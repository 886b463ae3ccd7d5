"""`EpochCounter`: data whose order is a function of seed and epoch."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number


class EpochCounter(keras.callbacks.Callback):
    """Makes data whose order is a function of seed and epoch.

    Use it to train a sampler, or with `keras_bdl.callbacks.Checkpoint`. Every
    epoch has another order, and a resumed run continues with the order that
    the run without interruption would have had. `shuffle` of a
    `tf.data.Dataset` begins with its first order again in every new process.

    Pass the object to `fit` as a callback. The object then takes the number of
    the epoch from Keras, also in a resumed run and with `initial_epoch`. Other
    passes over the data, such as those of a prediction, do not change the
    number of an epoch. Without the callback, the object counts all passes from
    0, in the order in which they begin. Reading only the first batch is also a
    pass.

    `keras_bdl.datasets.load` returns such data, with `DataSplits.epochs` as
    their callback. The counter is a variable of TensorFlow on the CPU, which
    the pipeline reads without Python. Each host of a TPU pod has its own
    variable: make the data there, in a function for
    `strategy.distribute_datasets_from_function`. Do not repeat the data with
    `repeat`: a pass would then begin before `fit` has set its number.

    Attributes:
        next_epoch: Epoch number of the next pass. Set it to read a certain
            epoch.

    Example:

    ```python
    epochs = keras_bdl.datasets.EpochCounter()
    data = epochs.batches((x, y), 32, seed=0)
    model.fit(data, epochs=2, callbacks=[epochs], verbose=0)
    ```
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = _variable(0, "CPU:0")
        self._of_host = {self._next.device: self._next}

    @property
    def next_epoch(self) -> int:
        """Epoch number of the next pass."""
        return int(self._next.numpy())

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        for counter in self._of_host.values():
            counter.assign(epoch)

    def set_params(self, params: dict[str, Any]) -> None:
        """Registers the counter for the `Checkpoint` of the same `fit`."""
        super().set_params(params)
        params.setdefault("epoch_counters", []).append(self)

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Takes the number of the epoch from Keras."""
        self.next_epoch = epoch

    def batches(
        self,
        data: Any,
        batch_size: int,
        *,
        seed: int,
        buffer_size: int | None = None,
        drop_remainder: bool = False,
    ) -> tf.data.Dataset:
        """Returns batches in an order that depends on seed and epoch alone.

        Args:
            data: Arrays with one row for each example, such as `(x, y)`; or a
                `tf.data.Dataset` of single examples in a fixed order, with
                known cardinality.
            batch_size: Number of examples in a batch.
            seed: Seed of the order. Chains that use the same seed see the same
                batches.
            buffer_size: Size of the buffer from which a `tf.data.Dataset` is
                shuffled, for data that do not fit into memory. Defaults to
                `None`: all examples. Arrays need no buffer.
            drop_remainder: Whether to leave out a last, smaller batch.
                Defaults to `False`.
        """
        check_count("batch_size", batch_size)
        check_number("seed", seed, at_least=0, below=2**31, integer=True)
        check_bool("drop_remainder", drop_remainder)
        if buffer_size is not None:
            check_count("buffer_size", buffer_size)
        gather = None
        if isinstance(data, tf.data.Dataset):
            size, one_epoch = _shuffled(data, buffer_size, seed)
        else:
            size, one_epoch, gather = _permuted(data, seed)
        rows = with_size(self.dataset().flat_map(one_epoch), size)
        batches = rows.batch(batch_size, drop_remainder=drop_remainder)
        if gather is not None:
            batches = batches.map(gather, tf.data.AUTOTUNE)
        return in_fixed_order(batches)

    def dataset(self) -> Any:
        """Returns a dataset of one element, the number of the pass."""
        counter = self._on_this_host()

        def begin_pass(_: Any) -> Any:
            epoch = counter.read_value()
            counter.assign(epoch + 1)
            return epoch

        numbers = with_size(tf.data.Dataset.from_tensors(0).map(begin_pass), 1)
        # `Checkpoint` finds the counter here.
        numbers.epoch_counter = self
        return numbers

    def _on_this_host(self) -> Any:
        """Returns the counter on the host of the device scope around.

        A pipeline cannot read a variable of another host.
        """
        if not tf.executing_eagerly():
            return self._next
        with tf.device("CPU:0"):
            device = tf.zeros(()).device
        if device not in self._of_host:
            self._of_host[device] = _variable(self.next_epoch, device)
        return self._of_host[device]


def _variable(value: int, device: str) -> Any:
    """Returns a variable with one copy, also under the scope of a strategy."""

    def make() -> Any:
        with tf.device(device):
            return tf.Variable(value, trainable=False, dtype=tf.int64)

    # A scope covers one thread.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def _permuted(arrays: Any, seed: int) -> tuple[int, Callable, Callable]:
    """Returns the number of rows, their order in an epoch, and their batch."""
    with tf.device("CPU:0"):
        arrays = keras.tree.map_structure(tf.convert_to_tensor, arrays)
    shapes = [tuple(a.shape) for a in keras.tree.flatten(arrays)]
    sizes = {shape[0] if shape else None for shape in shapes}
    if len(sizes) != 1 or None in sizes:
        raise ValueError(
            "`data` must be arrays with one row for each example, all with "
            "equally many rows, or a `tf.data.Dataset`. Received: arrays of "
            f"shapes {shapes}"
        )
    size: Any = sizes.pop()

    def one_epoch(epoch: Any) -> Any:
        rows = tf.random.experimental.stateless_shuffle(
            tf.range(size, dtype=tf.int64),
            epoch_key(seed, epoch),
            alg="philox",  # the same order on every kind of machine
        )
        return tf.data.Dataset.from_tensor_slices(rows)

    def gather(rows: Any) -> Any:
        return keras.tree.map_structure(lambda a: tf.gather(a, rows), arrays)

    return size, one_epoch, gather


def _shuffled(
    examples: Any, buffer_size: int | None, seed: int
) -> tuple[int, Callable]:
    """Returns the number of examples and their order in an epoch."""
    size = int(examples.cardinality())
    if size < 1:
        raise ValueError(
            "`data` must have a known, finite number of examples. Apply "
            "`tf.data.experimental.assert_cardinality` to it. Received: a "
            f"dataset of cardinality {size}"
        )

    def one_epoch(epoch: Any) -> Any:
        key = epoch_key(seed, epoch)
        return shuffled_examples(examples, buffer_size or size, key)

    return size, one_epoch


def shuffled_examples(examples: Any, buffer_size: int, key: Any) -> Any:
    """Returns a dataset in an order that depends on a key alone.

    Call this function inside of `flat_map`.
    """
    # A shuffle mixes the global seed into its own seed. This call sets
    # the global seed only for the graph that is being traced.
    tf.random.set_seed(1)
    order = tf.random.stateless_uniform((), key, None, None, tf.int64)
    return examples.shuffle(
        buffer_size, seed=order, reshuffle_each_iteration=False
    )


def epoch_key(seed: int, *data: Any) -> Any:
    """Returns a key for stateless random numbers."""
    key = tf.constant((seed, 0), tf.int32)
    for number in data:
        key = tf.random.fold_in(key, number)
    return key


def with_size(dataset: Any, size: int) -> Any:
    """Returns a dataset with known cardinality."""
    return dataset.apply(tf.data.experimental.assert_cardinality(size))


def in_fixed_order(batches: Any) -> Any:
    """Returns batches in the same order on every worker."""
    options = tf.data.Options()
    options.deterministic = True
    # With sharding by files, the order would differ between workers.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return batches.with_options(options).prefetch(tf.data.AUTOTUNE)
