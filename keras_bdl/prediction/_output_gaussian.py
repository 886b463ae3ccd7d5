"""The exact Gaussian of the outputs of a linearised network."""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._capture import Plan
from keras_bdl.curvature._rule import counted_as_trained
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._weight_scope import PinnedWeights
from keras_bdl.prediction._stateless_call import stateless_call
from keras_bdl.prediction._unrolled import stacked
from keras_bdl.prediction._unrolled import unrolls_loops
from keras_bdl.prediction._variable_block import variable_blocks

# Number of values that the gradients of one layer may have at once.
_LARGEST = 2**24


@dataclasses.dataclass(frozen=True)
class OutputGaussian:
    """The Gaussian of one output, for each example.

    Attributes:
        mean: The mean, of the shape of the output.
        roots: Tensors R of shape `(examples, n, k)` for n values of the
            output. The covariance is the sum of all `R R^T` and of `rest`.
        rest: Tensor of shape `(examples, n, n)`, or `None`.
    """

    mean: tf.Tensor
    roots: list[tf.Tensor]
    rest: tf.Tensor | None

    def variance(self) -> tf.Tensor:
        """Returns the variance of each value, in the shape of the mean."""
        total = tf.zeros_like(tf.reshape(self.mean, [-1, self._size]))
        for root in self.roots:
            # tf2onnx 1.17 gives squares of a transposed tensor a wrong shape.
            total += tf.einsum("enk,enk->en", root, root)
        if self.rest is not None:
            total += tf.linalg.diag_part(self.rest)
        return tf.reshape(total, [-1, *self.mean.shape[1:]])

    def sample(self, key: tf.Tensor) -> tf.Tensor:
        """Returns a sample, with the same noise for all examples.

        Args:
            key: Two integers that select the sample.
        """
        total = tf.reshape(self.mean, [-1, self._size])
        for number, root in enumerate(self._all_roots()):
            noise = tf.random.stateless_normal(
                [root.shape[-1]], key + [0, number], dtype=root.dtype
            )
            total += tf.linalg.matvec(root, noise)
        return tf.reshape(total, [-1, *self.mean.shape[1:]])

    @property
    def _size(self):
        return math.prod(self.mean.shape[1:])

    def _all_roots(self):
        if self.rest is None:
            return self.roots
        covariance = self.rest
        for root in self.roots:
            covariance += tf.matmul(root, root, transpose_b=True)
        values, vectors = tf.linalg.eigh(covariance)
        # Rounding may make eigenvalues of 0 negative.
        stddevs = tf.sqrt(tf.maximum(values, 0.0))
        return [vectors * stddevs[:, None, :]]


def output_gaussians(
    model: keras.Model,
    inputs: Any,
    values: Sequence[tf.Tensor],
    *,
    layout: Sequence[tuple],
    covered: Sequence[int],
    arrays: Sequence[tf.Tensor],
    outputs_of: Callable[[Any], list],
) -> list[OutputGaussian]:
    """Returns the Gaussian of each output of a linearised network.

    With weights `w ~ N(m, C)`, the linearised network
    `f(x, m) + J(x) (w - m)` has the outputs

        N(f(x, m), J(x) C J(x)^T)                                         (1)

    For a layer that multiplies one vector by its matrix, J is never formed:
    `VariableBlock.root_of_product` has R with `J C J^T = R R^T`.

    Args:
        model: A built Keras model.
        inputs: A batch of nested tensors.
        values: A tensor for each of `model.variables`; m for the uncertain
            ones.
        layout: The layout of a `CovarianceBlocks`.
        covered: Positions in `model.variables` of the variables that the
            layout counts. `()` means the trainable variables.
        arrays: Its arrays, as tensors.
        outputs_of: Function from the outputs of the model to a list of tensors,
            with the examples on the first axis. The result has a Gaussian for
            each.
    """
    counted = [model.variables[i] for i in covered]
    blocks = variable_blocks(
        counted or model.trainable_variables, layout, arrays
    )
    # In the order of the model, each once.
    wanted = {id(v) for block in blocks for v in block.variables}
    uncertain = [v for v in model.variables if id(v) in wanted]
    with counted_as_trained(uncertain):
        return _gaussians(
            model, inputs, values, blocks, uncertain, outputs_of=outputs_of
        )


def _gaussians(model, inputs, values, blocks, uncertain, *, outputs_of):
    wanted = {id(v) for v in uncertain}
    value_of = {
        id(v): value for v, value in zip(model.variables, values, strict=True)
    }
    # Laplace differentiates layers without a rule in the same way.
    plan = Plan(model, fallback=True, variables=uncertain)
    others = [
        (v, value_of[id(v)]) for v in model.variables if id(v) not in wanted
    ]
    tape = tf.GradientTape(persistent=True)
    with tape:
        capture = Capture(
            plan,
            [value_of[id(v)] for v in plan.variables],
            tape,
            examples=ops.shape(keras.tree.flatten(inputs)[0])[0],
            pure=True,
        )
        with capture.recording():
            with capture.forward():
                outputs = stateless_call(
                    model, inputs, PinnedWeights(others), training=False
                )
            outputs = outputs_of(outputs)
        _check_sizes(outputs)
        # Flat while the tape still records.
        flat = [tf.reshape(o, [-1, math.prod(o.shape[1:])]) for o in outputs]
    return [
        OutputGaussian(output, *_covariance(capture, tape, rows, blocks))
        for output, rows in zip(outputs, flat, strict=True)
    ]


def _check_sizes(outputs):
    for output in outputs:
        if None in output.shape[1:]:
            raise ValueError(
                "`link` needs outputs of a fixed size. Use an input shape "
                "without `None`, or leave `link` out. "
                f"Received: an output of shape {tuple(output.shape)}"
            )


def _covariance(capture, tape, outputs, blocks):
    """Returns the roots and the rest of the covariance of the outputs.

    Args:
        capture: A `Capture` after the forward pass.
        tape: The tape that recorded the forward pass.
        outputs: A tensor of shape `(examples, n)`.
        blocks: A list of `VariableBlock`.
    """
    cotangents = _cotangents(tape, outputs, capture.outputs)
    roots: list = []
    rest: Any = None
    first = [dz[0] for dz in cotangents]
    with capture.computing_rules():
        grouped = capture.calls_by_layer(first)
        for layer, rule, _ in grouped:
            calls = [
                (call.inputs, dz)
                for call, dz in zip(capture.calls, cotangents, strict=True)
                if call.layer is layer
            ]
            of_layer = {id(v) for v in rule.weights(layer)}
            own = [
                b for b in blocks if {id(v) for v in b.variables} <= of_layer
            ]
            found = _roots_of_product(layer, rule, calls, own)
            if found is not None:
                roots += found
                continue
            part = _explicit(layer, rule, calls, own)
            part = tf.cast(part, outputs.dtype)
            rest = part if rest is None else rest + part
    return [tf.cast(root, outputs.dtype) for root in roots], rest


def _cotangents(tape, outputs, places):
    """Returns the gradients of each output, `(n, examples, ...)` a place."""
    count = outputs.shape[1]

    def gradients(k):
        direction = tf.ones_like(outputs) * tf.one_hot(
            k, count, dtype=outputs.dtype
        )
        return tape.gradient(
            outputs,
            places,
            output_gradients=direction,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )

    if not places:
        return []
    like = [tf.TensorSpec(z.shape, z.dtype) for z in places]
    found = stacked(gradients, 0, count, like=like)
    return [in_full_precision(dz) for dz in found]


def _roots_of_product(layer, rule, calls, blocks):
    """Returns R for each block, or `None` if the layer is no such product."""
    matrices = rule.matrices(layer)
    if len(calls) != 1 or len(matrices) != 1:
        return None
    (matrix,) = matrices
    inputs, dz = calls[0]
    a, rows = matrix.rows(inputs, dz[0])
    if a.shape[1] != 1 or rows.shape[1] != 1:
        return None
    a = tf.squeeze(a, axis=1)
    # Rows of all outputs: the rule may sort the axes of dz.
    _, rows = matrix.rows(inputs, tf.reshape(dz, [-1, *dz.shape[2:]]))
    dz = tf.reshape(rows, [dz.shape[0], -1, rows.shape[-1]])
    one = tf.ones_like(a[:, :1])
    roots = []
    for block in blocks:
        has_bias = any(v is matrix.bias for v in block.variables)
        if any(
            v is not matrix.bias and v is not matrix.kernel
            for v in block.variables
        ):
            return None
        of_kernel = len(block.variables) > has_bias
        x = [a] * of_kernel + [one] * has_bias
        roots.append(block.root_of_product(tf.concat(x, axis=-1), dz))
    return roots


def _explicit(layer, rule, calls, blocks):
    """Returns `J C J^T` of one layer from the gradients of each example."""
    count, dtype = calls[0][1].shape[0], calls[0][1].dtype
    inputs = [x for x, _ in calls]
    # The examples on the first axis, like the inputs.
    cotangents = [_swapped(dz) for _, dz in calls]

    def of_examples(inputs, cotangents):
        def whitened(k):
            pairs = [
                (x, dz[:, k]) for x, dz in zip(inputs, cotangents, strict=True)
            ]
            found = rule.summed_per_example(layer, pairs)
            gradients = {
                id(v): g
                for v, g in zip(rule.weights(layer), found, strict=True)
            }
            rows = [block.whitened(gradients) for block in blocks]
            return tf.cast(tf.concat(rows, axis=-1), dtype)

        rows = stacked(whitened, 0, count, like=dtype)
        return tf.einsum("nbk,mbk->bnm", rows, rows)

    weights = sum(math.prod(v.shape) for b in blocks for v in b.variables)
    examples = tf.shape(cotangents[0])[0]

    def of_one_example(i):
        one = [rule.of_examples(x, lambda t: tf.gather(t, [i])) for x in inputs]
        return of_examples(one, [tf.gather(dz, [i]) for dz in cotangents])[0]

    def example_by_example():
        return tf.map_fn(
            of_one_example,
            tf.range(examples),
            fn_output_signature=tf.TensorSpec([count, count], dtype),
        )

    if unrolls_loops():
        return of_examples(inputs, cotangents)
    return tf.cond(
        examples <= max(1, _LARGEST // (count * weights)),
        lambda: of_examples(inputs, cotangents),
        example_by_example,
    )


def _swapped(tensor):
    return tf.transpose(tensor, [1, 0, *range(2, len(tensor.shape))])
