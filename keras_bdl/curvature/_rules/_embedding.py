"""The curvature rule for embeddings."""

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import register_rule


@register_rule(keras.layers.Embedding)
class EmbeddingRule(Rule):
    """Rule for `Embedding`.

    The gradient of an example is zero except in the rows that the example looks
    up. If an example looks up a row several times, the rule squares the sum of
    the cotangents.
    """

    taps = "output"

    def weights(self, layer):
        """Returns the table."""
        return [layer.embeddings]

    def per_example(self, layer, inputs, cotangents):
        """Returns the gradients of each example, as whole tables."""
        ids, dz = _looked_up(layer, [(inputs, cotangents)])
        examples = tf.shape(ids)[0]
        size = layer.input_dim
        rows = ids + size * tf.range(examples)[:, None]
        tables = tf.math.unsorted_segment_sum(
            tf.reshape(dz, (-1, layer.output_dim)),
            tf.reshape(rows, [-1]),
            examples * size,
        )
        return [ops.reshape(tables, (-1, size, layer.output_dim))]

    def moments(self, layer, calls, example_weights):
        """Returns the moments; needs memory for the looked-up rows only."""
        return [lookup_moments(layer, calls, example_weights)]


def lookup_moments(layer, calls, example_weights, rows_of=None):
    """Returns the moments of the gradients of a table.

    The gradient of example i is g_i = r_i + d_i. The rows of r_i are zero but
    for those that the example looks up. The second moment here lacks the part
    of d_i^2.

    Args:
        layer: The layer.
        calls: Pairs of row numbers and cotangents.
        example_weights: The v_i of the second moment.
        rows_of: Function from row numbers `(examples, times)` to these rows of
            d_i. Defaults to `None`: d_i is zero.

    Returns:
        The sums over examples of r_i and of v_i (r_i^2 + 2 r_i d_i).
    """
    ids, dz = _looked_up(layer, calls)
    order = tf.argsort(ids, axis=1)
    ids = tf.gather(ids, order, batch_dims=1)
    dz = tf.gather(dz, order, batch_dims=1)
    # Equal rows are neighbours now. Each run of them is a segment.
    first = tf.concat(
        [tf.ones_like(ids[:, :1], tf.bool), ids[:, 1:] != ids[:, :-1]], 1
    )
    segments = tf.cumsum(tf.cast(tf.reshape(first, [-1]), tf.int32)) - 1
    flat = tf.reshape(dz, (-1, layer.output_dim))
    totals = tf.math.unsorted_segment_sum(flat, segments, tf.size(ids))
    totals = tf.gather(totals, segments)
    # Count each run once, at its start.
    once = tf.cast(first, dz.dtype) * example_weights[:, None]
    squares = tf.square(totals)
    if rows_of is not None:
        others = tf.reshape(rows_of(ids), (-1, layer.output_dim))
        squares += 2.0 * totals * others
    squares = squares * tf.reshape(once, (-1, 1))
    ids = tf.reshape(ids, [-1])
    return tuple(
        tf.math.unsorted_segment_sum(part, ids, layer.input_dim)
        for part in (flat, squares)
    )


def _looked_up(layer, calls):
    """Returns row numbers `(examples, times)` and cotangents of all calls."""
    ids, dz = [], []
    for inputs, cotangents in calls:
        rank = len(inputs.shape)
        shape = ops.shape(inputs)
        times = 1 if rank == 1 else -1
        ids.append(tf.reshape(tf.cast(inputs, tf.int32), (shape[0], times)))
        dz.append(tf.reshape(cotangents, (shape[0], times, layer.output_dim)))
    return tf.concat(ids, 1), tf.concat(dz, 1)
