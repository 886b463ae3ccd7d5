"""Sums of per-example gradients over the examples of a batch."""

import math
from typing import Any

import keras
import tensorflow as tf
from keras import ops

# `BUDGET`: most entries of per-example gradients in memory at a time, 64 MiB in
# float32. `LIKELY`: the assumed batch size if the shape does not contain the
# batch size.
BUDGET = 2**24
LIKELY = 128


def in_full_precision(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a tensor in float32 or higher precision.

    Args:
        tensor: A tensor of numbers.
    """
    dtype = keras.backend.result_type(tensor.dtype, "float32")
    return ops.cast(tensor, dtype)


class ExampleSums:
    """The sums over the examples of g_i and of v_i g_i^2.

    The sums are products with vectors, which are faster than sums over the
    first axis. A network has hundreds of sums, so all sums of a layer use the
    same constants.

    Args:
        example_weights: The v_i.

    Attributes:
        example_weights: The v_i.
    """

    def __init__(self, example_weights: tf.Tensor):
        self.example_weights = example_weights
        self._row = tf.expand_dims(example_weights, 0)
        self._ones = tf.ones_like(self._row)
        self._shapes: dict[tuple, tf.Tensor] = {}

    def of(
        self, per_example: tf.Tensor, shape: tuple | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns both sums.

        Args:
            per_example: The g_i, with the examples on the first axis.
            shape: Shape of the sums. Defaults to `None`: all axes of the g_i
                but the first.
        """
        shape = tuple(per_example.shape[1:] if shape is None else shape)
        rows = tf.reshape(per_example, self._constant((-1, math.prod(shape))))
        sums = tf.matmul(self._ones, rows)
        squares = tf.matmul(self._row, tf.square(rows))
        shape = self._constant(shape)
        return tf.reshape(sums, shape), tf.reshape(squares, shape)

    def _constant(self, shape):
        if shape not in self._shapes:
            self._shapes[shape] = tf.constant(shape, tf.int32)
        return self._shapes[shape]


def sum_and_squares(
    per_example: tf.Tensor, example_weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sums over the first axis of g_i and of v_i g_i^2.

    Args:
        per_example: The g_i.
        example_weights: The v_i.
    """
    return ExampleSums(example_weights).of(per_example)


def outer_moments(
    calls: list,
    *,
    groups: int,
    sums: ExampleSums,
    minus: tuple | None = None,
) -> tuple:
    """Returns the first and second moments of sums of outer products.

    For the gradients of a matrix,

        g_i = sum_p x_ip dz_ip^T - u t_i                                  (1)

    the moments are sum_i g_i and sum_i v_i g_i^2. If an example has one
    position, matrix products over the examples give both moments, and no g_i is
    computed.

    Args:
        calls: Pairs of x, `(examples * groups, positions, in)`, and dz,
            `(examples * groups, positions, out)`. The gradients of several
            calls are added.
        groups: Number of matrices, one for each group.
        sums: The sums over the examples, with the v_i.
        minus: The pair of u, `(groups, in, out)`, and t,
            `(examples, groups, out)`; `None` leaves the term out. Defaults to
            `None`.

    Returns:
        Two tensors of shape `(groups, in, out)`.
    """
    x, dz = joined_positions(calls)
    if x.shape[1] == 1:
        return _moments_of_one_position(
            x, dz, groups, sums.example_weights, minus
        )

    def moments(x, piece):
        g = _matmul_transposed(x, dz)
        shape = (groups, *g.shape[1:])
        if minus is not None:
            u, t = minus
            g = ops.reshape(g, (-1, *shape))
            g = g - u[:, piece] * t[:, :, None]  # (1)
        return sums.of(g, shape)

    pieces = _pieces_of(x.shape[-1], (x.shape[0] or LIKELY) * dz.shape[-1])
    if len(pieces) == 1:
        return moments(x, pieces[0])
    results: list[tuple] = []
    for piece in pieces:
        # Compute one piece after the other. Otherwise memory would hold the
        # gradients of all pieces at once.
        part = x[:, :, piece]
        part = after(results[-1], part) if results else part
        results.append(moments(part, piece))
    return tuple(
        ops.concatenate(parts, axis=1) for parts in zip(*results, strict=True)
    )


def joined_positions(calls: list) -> list:
    """Returns the inputs and the cotangents of all calls of a layer.

    Args:
        calls: Pairs of tensors `(examples, positions, features)`.

    Returns:
        Two tensors, with the positions of all calls joined on the second axis.
    """
    return [
        parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=1)
        for parts in zip(*calls, strict=True)
    ]


def outer_products(x: tf.Tensor, dz: tf.Tensor, groups: int = 1) -> tf.Tensor:
    """Returns the per-example gradients sum_p x_ip dz_ip^T of one call.

    Args:
        x: The inputs, `(examples * groups, positions, in)`.
        dz: The cotangents, `(examples * groups, positions, out)`.
        groups: Number of matrices, one for each group. Defaults to `1`.

    Returns:
        A tensor of shape `(examples, groups, in, out)`.
    """
    g = _matmul_transposed(x, dz)
    return ops.reshape(g, (-1, groups, *g.shape[1:]))


def after(tensors: Any, structure: Any) -> Any:
    """Returns nested tensors that are available only after other tensors.

    TensorFlow runs an operation as soon as its inputs exist. Without this wait,
    operations on the inputs of a layer would run in the forward pass, and
    memory would hold their results until the backward pass.

    Args:
        tensors: The tensors to wait for.
        structure: The nested tensors. Other objects stay unchanged.
    """
    if not tf.inside_function():
        return structure
    with tf.control_dependencies(tensors):
        return keras.tree.map_structure(
            lambda t: tf.identity(t) if tf.is_tensor(t) else t, structure
        )


def _pieces_of(size, numbers_each):
    """Returns slices of `range(size)` with at most `BUDGET` numbers each."""
    length = max(BUDGET // max(numbers_each, 1), 1)
    return [slice(i, i + length) for i in range(0, size, length)]


def _moments_of_one_position(x, dz, groups, example_weights, minus):
    x = ops.reshape(x, (-1, groups, x.shape[-1]))
    dz = ops.reshape(dz, (-1, groups, dz.shape[-1]))

    def weighted(values):
        return values * example_weights[:, None, None]

    gradient = _summed_outer(x, dz)
    squares = _summed_outer(ops.square(x), weighted(ops.square(dz)))
    if minus is None:
        return gradient, squares
    u, t = minus
    gradient = gradient - u * ops.sum(t, axis=0)[:, None]
    mixed = _summed_outer(x, weighted(dz * t))
    sizes = ops.sum(weighted(ops.square(t)), axis=0)[:, None]
    squares = squares - 2.0 * u * mixed + ops.square(u) * sizes
    # Rounding may make a zero negative.
    return gradient, ops.maximum(squares, 0.0)


def _summed_outer(x, dz):
    """Returns sums of outer products over examples, `(groups, in, out)`."""
    if x.shape[1] == 1:
        return tf.matmul(x[:, 0], dz[:, 0], transpose_a=True)[None]
    return ops.einsum("bgi,bgo->gio", x, dz)


def _matmul_transposed(x, dz):
    # An explicit transpose would copy.
    return tf.matmul(x, dz, transpose_a=True)
