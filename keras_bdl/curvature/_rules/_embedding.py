"""Rules for embeddings, also those that compute logits with their table."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.curvature._rule import ExampleSums
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rules._dense import outer_moments
from keras_bdl.curvature._rules._dense import outer_products
from keras_bdl.curvature._rules._dense import positions_of


@register_rule(keras.layers.Embedding)
class EmbeddingRule(Rule):
    """Rule for `Embedding`.

    The gradient of an example is zero except in the rows that the example looks
    up. If an example looks up a row several times, the rule squares the sum of
    the cotangents.
    """

    taps = "output"

    def weights(self, layer: Any) -> list:
        """Returns the table."""
        return [layer.embeddings]

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
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

    def moments(self, layer: Any, calls: list, example_weights: Any) -> list:
        """Returns the moments; needs memory for the looked-up rows only."""
        return [lookup_moments(layer, calls, example_weights)]


def lookup_moments(
    layer: Any,
    calls: list,
    example_weights: Any,
    rows_of: Callable | None = None,
) -> tuple:
    """Returns the moments of the gradients of a table.

    The gradient of example i is g_i = r_i + d_i. The rows of r_i are zero but
    for those that the example looks up. The second moment here lacks the part
    of d_i^2: the result are the sums over examples of r_i and of
    v_i (r_i^2 + 2 r_i d_i). `calls` are pairs of row numbers and cotangents.
    `rows_of` is a function from row numbers `(examples, times)` to these rows
    of d_i, which is zero without it.
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


def _looked_up(layer: Any, calls: list) -> tuple[Any, Any]:
    """Returns row numbers `(examples, times)` and cotangents of all calls."""
    ids, dz = [], []
    for inputs, cotangents in calls:
        rank = len(inputs.shape)
        shape = ops.shape(inputs)
        times = 1 if rank == 1 else -1
        ids.append(tf.reshape(tf.cast(inputs, tf.int32), (shape[0], times)))
        dz.append(tf.reshape(cotangents, (shape[0], times, layer.output_dim)))
    return tf.concat(ids, 1), tf.concat(dz, 1)


@register_rule(keras.layers.ReversibleEmbedding)
class ReversibleEmbeddingRule(EmbeddingRule):
    """Rule for `ReversibleEmbedding`.

    A language model calls this layer twice. The first call looks up rows of the
    table, the second (`reverse=True`) multiplies by the table. If both use one
    table, the gradient of example i is a sum of both parts,

        g_i = r_i + d_i,   g_i^2 = r_i^2 + 2 r_i d_i + d_i^2             (1)

    where the rows of r_i are zero but for those that the example looks up.
    """

    def weights(self, layer: Any) -> list:
        """Returns the table, and the table of the second call if it differs."""
        if layer.tie_weights:
            return [layer.embeddings]
        return [layer.embeddings, layer.reverse_embeddings]

    def run(
        self, layer: Any, call: Callable, inputs: Any, reverse: bool = False
    ) -> tuple[Any, Any]:
        """Calls the layer and keeps which call it was."""
        outputs = call(inputs, reverse=reverse)
        return (inputs, outputs if reverse else None), outputs

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
        """Returns the gradients of each example, as whole tables."""
        inputs, logits = inputs
        if logits is None:
            found = super().per_example(layer, inputs, cotangents)
        else:
            x, dz = _product(layer, inputs, logits, cotangents)
            found = [tf.squeeze(outer_products(dz, x), axis=1)]
        if layer.tie_weights:
            return found
        (other,) = found
        shape = (tf.shape(other)[0], layer.input_dim, layer.output_dim)
        pair = [other, tf.zeros(shape, other.dtype)]
        if logits is not None:
            pair.reverse()
        return [pair[0], tf.linalg.matrix_transpose(pair[1])]

    def moments(self, layer: Any, calls: list, example_weights: Any) -> list:
        """Returns the moments; holds no gradient of a whole table."""
        lookups = [(x, dz) for (x, z), dz in calls if z is None]
        products = [
            _product(layer, x, z, dz)[::-1]
            for (x, z), dz in calls
            if z is not None
        ]
        zeros = tf.zeros((layer.input_dim, layer.output_dim), calls[0][1].dtype)
        of_products: Any = (zeros, zeros)
        of_lookups: Any = (zeros, zeros)
        if products:
            of_products = [
                tf.squeeze(moment, axis=0)
                for moment in outer_moments(
                    products, groups=1, sums=ExampleSums(example_weights)
                )
            ]

        def rows_of(ids: Any) -> Any:
            rows = 0.0
            for dz, x in products:
                columns = tf.gather(dz, ids, axis=2, batch_dims=1)
                rows += tf.matmul(columns, x, transpose_a=True)
            return rows

        both = layer.tie_weights and products
        if lookups:
            of_lookups = lookup_moments(
                layer, lookups, example_weights, rows_of if both else None
            )
        if not layer.tie_weights:
            transposed = [tf.transpose(moment) for moment in of_products]
            return [of_lookups, tuple(transposed)]
        gradient, squares = (
            a + b for a, b in zip(of_lookups, of_products, strict=True)
        )
        # Rounding may make a zero negative.
        return [(gradient, ops.maximum(squares, 0.0))]


def _product(
    layer: Any, inputs: Any, logits: Any, cotangents: Any
) -> tuple[Any, Any]:
    """Returns x and the cotangents of the logits before the soft cap."""
    dz = cotangents
    if layer.logit_soft_cap is not None:
        # The derivative of c tanh(z / c) is 1 - tanh(z / c)^2.
        ratio = in_full_precision(logits) / layer.logit_soft_cap
        dz = dz * (1.0 - ops.square(ratio))
    return positions_of(in_full_precision(inputs)), positions_of(dz)
