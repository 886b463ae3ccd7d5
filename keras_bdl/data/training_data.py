"""Training data that can be gone through again and again."""

from keras_bdl.data.examples import example_batches


class TrainingData:
    """Batches of inputs, labels and perhaps weights.

    Args:
        data: `(x, y)` or `(x, y, sample_weight)` of arrays, or a batched
            `tf.data.Dataset` or a `keras.utils.PyDataset` of these.
        batch_size: For arrays. `None` for 32.
    """

    def __init__(self, data, batch_size):
        if hasattr(data, "__next__"):
            raise ValueError(
                "`data` must be data that can be read again: arrays, a "
                "`tf.data.Dataset` or a `keras.utils.PyDataset`. "
                f"Received: data={data}, which one pass uses up"
            )
        self._data = data
        self._batch_size = batch_size
        batches, self.num_batches = example_batches(data, batch_size, pad=False)
        # Arrays are read where they are; others by a new iterator each time.
        self._batches = batches if batches.in_memory else None
        self.examples = None

    def __iter__(self):
        batches = self._batches
        if batches is None:
            batches, _ = example_batches(
                self._data, self._batch_size, pad=False
            )
        examples = 0
        for batch in batches:
            if "y" not in batch.inputs:
                raise ValueError(
                    "`data` must have labels: `(x, y)`, or batches of these. "
                    f"Received: data of type {type(self._data).__name__} "
                    "without labels"
                )
            examples += batch.size
            yield batch
        self.examples = examples
