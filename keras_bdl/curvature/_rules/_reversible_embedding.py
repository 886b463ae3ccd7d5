"""The curvature rule for embeddings that also compute logits."""

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.curvature._reductions import ExampleSums
from keras_bdl.curvature._reductions import in_full_precision
from keras_bdl.curvature._reductions import outer_moments
from keras_bdl.curvature._reductions import outer_products
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rules._dense import positions_of
from keras_bdl.curvature._rules._embedding import EmbeddingRule
from keras_bdl.curvature._rules._embedding import lookup_moments


@register_rule(keras.layers.ReversibleEmbedding)
class ReversibleEmbeddingRule(EmbeddingRule):
    """Rule for `ReversibleEmbedding`.

    A language model calls this layer twice. The first call looks up rows of the
    table, the second (`reverse=True`) multiplies by the table. If both use one
    table, the gradient of example i is a sum of both parts,

        g_i = r_i + d_i,   g_i^2 = r_i^2 + 2 r_i d_i + d_i^2             (1)

    where the rows of r_i are zero but for those that the example looks up.
    """

    def weights(self, layer):
        """Returns the table, and the table of the second call if it differs."""
        if layer.tie_weights:
            return [layer.embeddings]
        return [layer.embeddings, layer.reverse_embeddings]

    def run(self, layer, call, inputs, reverse=False):
        """Calls the layer and keeps which call it was."""
        outputs = call(inputs, reverse=reverse)
        return (inputs, outputs if reverse else None), outputs

    def per_example(self, layer, inputs, cotangents):
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

    def moments(self, layer, calls, example_weights):
        """Returns the moments; holds no gradient of a whole table."""
        lookups = [(x, dz) for (x, z), dz in calls if z is None]
        products = [
            _product(layer, x, z, dz)[::-1]
            for (x, z), dz in calls
            if z is not None
        ]
        zeros = tf.zeros((layer.input_dim, layer.output_dim), calls[0][1].dtype)
        of_products = of_lookups = (zeros, zeros)
        if products:
            of_products = [
                tf.squeeze(moment, axis=0)
                for moment in outer_moments(
                    products, groups=1, sums=ExampleSums(example_weights)
                )
            ]

        def rows_of(ids):
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


def _product(layer, inputs, logits, cotangents):
    """Returns x and the cotangents of the logits before the soft cap."""
    dz = cotangents
    if layer.logit_soft_cap is not None:
        # The derivative of c tanh(z / c) is 1 - tanh(z / c)^2.
        ratio = in_full_precision(logits) / layer.logit_soft_cap
        dz = dz * (1.0 - ops.square(ratio))
    return positions_of(in_full_precision(inputs)), positions_of(dz)
