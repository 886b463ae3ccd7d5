"""A function of all posterior samples in one graph."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bdl.prediction._split_function import SplitFunction
from keras_bdl.prediction._unrolled import stacked
from keras_bdl.prediction._unrolled import unrolls_loops

# Number of output values of the samples that are averaged together. More would
# leave the caches of a processor, and take a tenth to a quarter longer.
_USUAL = 2**20
# A few samples are averaged together up to this number.
_LARGEST = 2**22
_FEW = 4
# Assumed where the size of a batch is not known in the graph.
_LARGEST_BATCH = 2**12


def average_over_samples(
    function: Callable,
    fixed: Sequence[tf.Tensor],
    samples: Sequence[tf.Tensor],
    *,
    examples: Any,
    average: Callable,
    merge: Callable,
    in_one_part: bool = False,
) -> Any:
    """Returns the average of a function over samples of its arguments.

    Operations that no sample changes run once. The others run in a loop inside
    the graph. If they are one matrix product, such as a last layer, they run
    for all samples at once. Large outputs are averaged part by part.

    Args:
        function: Function of two lists of tensors, `(fixed, varying)`, that
            returns nested tensors with the examples on the first axis.
        fixed: Tensors that are the same for all samples.
        samples: Tensors with the samples on the first axis. `function`
            receives one row of each as `varying`.
        examples: Number of examples in the batch.
        average: Function from the outputs of several samples, on the first
            axis, to their average: nested tensors.
        merge: Function `(first, second, first_count, second_count)` that
            returns the average over two groups of samples.
        in_one_part: Whether to average all outputs at once, whatever their
            size. XLA needs this. Defaults to `False`.
    """
    if not samples:
        return average(_with_first_axis(function(fixed, [])))
    if tf.executing_eagerly():
        outputs = [
            function(fixed, [tensor[s] for tensor in samples])
            for s in range(len(samples[0]))
        ]
        return average(
            tf.nest.map_structure(lambda *rows: tf.stack(rows), *outputs)
        )
    split = SplitFunction(function, fixed, [tensor[0] for tensor in samples])
    shared = split.once(fixed)
    count = samples[0].shape[0] if unrolls_loops() else tf.shape(samples[0])[0]
    in_one_part = in_one_part or unrolls_loops()
    if not split.repeats:
        return average(_with_first_axis(split.for_sample(shared, [])))

    def outputs_of(start, size):
        if split.products == 1 and not in_one_part:
            parts = [tensor[start : start + size] for tensor in samples]
            return tf.vectorized_map(
                lambda rows: split.for_sample(shared, rows), parts
            )
        return stacked(
            lambda s: split.for_sample(
                shared, [tf.gather(tensor, s) for tensor in samples]
            ),
            start,
            size,
            like=split.outputs,
        )

    if in_one_part or _are_small(split, samples, examples):
        return average(outputs_of(0, count))
    values = _values_of_a_sample(split, shared, samples, examples)
    size = tf.minimum(count, _samples_of_a_part(values))
    first = average(outputs_of(0, size))

    def add_part(done, total):
        more = tf.minimum(size, count - done)
        part = average(outputs_of(done, more))
        return done + more, merge(total, part, done, more)

    _, total = tf.while_loop(
        lambda done, _: done < count,
        add_part,
        (size, first),
        shape_invariants=(
            tf.TensorShape([]),
            tf.nest.map_structure(lambda t: t.shape, first),
        ),
    )
    return total


def _with_first_axis(outputs):
    """Returns the outputs as those of one sample."""
    return tf.nest.map_structure(lambda t: tf.expand_dims(t, 0), outputs)


def _are_small(split, samples, examples):
    """Returns whether all outputs certainly fit into memory at once."""
    shapes = [spec.shape for spec in tf.nest.flatten(split.outputs)]
    count = samples[0].shape[0]
    if count is None or not all(s[1:].is_fully_defined() for s in shapes):
        return False
    largest = examples if isinstance(examples, int) else _LARGEST_BATCH
    values = sum(shape[1:].num_elements() for shape in shapes)
    return count * values * largest <= _LARGEST


def _samples_of_a_part(values):
    """Returns how many samples of a number of values to average together."""
    values = tf.maximum(values, 1)
    few = tf.minimum(_LARGEST // values, _FEW)
    return tf.cast(tf.maximum(tf.maximum(_USUAL // values, few), 1), tf.int32)


def _values_of_a_sample(split, shared, samples, examples):
    """Returns the number of output values of one sample."""
    shapes = [spec.shape[1:] for spec in tf.nest.flatten(split.outputs)]
    if all(shape.is_fully_defined() for shape in shapes):
        values = sum(shape.num_elements() for shape in shapes)
        return tf.cast(examples, tf.int64) * values
    outputs = split.for_sample(shared, [tensor[0] for tensor in samples])
    sizes = [tf.size(o, tf.int64) for o in tf.nest.flatten(outputs)]
    return tf.add_n(sizes)
