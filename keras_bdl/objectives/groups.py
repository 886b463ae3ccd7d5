"""Works through a batch group by group."""

import keras
import tensorflow as tf

from keras_bdl.objectives.forward import Outcome


def by_groups(look, forward, size):
    """Averages over groups of a batch, as if each were a batch of its own.

    Where the groups do not come out even, the first one is smaller, and
    counts for less. BatchNorm normalises over a group.

    Args:
        look: Takes a `Forward` and returns an `Outcome` and gradients, a list
            of tensors.
        forward: The batch.
        size: Examples in a group.

    Returns:
        What `look` does.
    """
    examples = forward.examples
    rest = (examples - 1) // size  # whole groups after the first one
    if not isinstance(rest, int):
        rest = tf.maximum(rest, 0)  # also of a replica without examples
    begin = examples - rest * size
    first = forward.part(0, begin)
    outcome, gradients = look(first)
    if isinstance(rest, int) and rest == 0:
        return outcome, gradients

    def weight(part):
        # A replica without examples has a group of none, of no weight.
        return tf.math.divide_no_nan(
            tf.cast(part, "float32"), tf.cast(examples, "float32")
        )

    def scaled(outcome, gradients, by):
        numbers = [outcome.loss, outcome.nll, *gradients]
        return [n * tf.cast(by, n.dtype) for n in numbers]

    outputs = keras.tree.flatten(outcome.y_pred)
    arrays = [
        tf.TensorArray(y.dtype, rest, element_shape=(size, *y.shape[1:]))
        for y in outputs
    ]
    # Replicas cannot assign from inside of a loop: it carries the values.
    state = first.assigned
    values = [tf.convert_to_tensor(v.value) for v in state]
    share = weight(size)

    def body(i, sums, arrays, values):
        pairs = list(zip(state, values, strict=True))
        part = forward.part(begin + i * size, size, pairs)
        found, gradients = look(part)
        added = scaled(found, gradients, share)
        y_pred = keras.tree.flatten(found.y_pred)
        return (
            i + 1,
            [a + b for a, b in zip(sums, added, strict=True)],
            [a.write(i, y) for a, y in zip(arrays, y_pred, strict=True)],
            part.new_state,
        )

    _, sums, arrays, values = tf.while_loop(
        lambda i, *_: i < rest,
        body,
        (
            tf.constant(0),
            scaled(outcome, gradients, weight(begin)),
            arrays,
            values,
        ),
        parallel_iterations=1,
    )
    for variable, value in zip(state, values, strict=True):
        variable.assign(value)
    outputs = [
        tf.concat([y, a.concat()], 0)
        for y, a in zip(outputs, arrays, strict=True)
    ]
    loss, nll, *gradients = sums
    y_pred = keras.tree.pack_sequence_as(outcome.y_pred, outputs)
    return Outcome(loss, nll, y_pred), gradients
