"""Links: predictions from the exact Gaussian of a linearised network's outputs.

`"probit"`, `"identity"` and `"monte_carlo"` are the links: the last step is in
`linked_values`, the Gaussian in `output_gaussians`.
"""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._capture import Plan
from keras_bdl.curvature._rule import PinnedWeights
from keras_bdl.curvature._rule import counted_as_trained
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.posteriors._gaussian import COLUMNS
from keras_bdl.posteriors._gaussian import VARIANCE
from keras_bdl.prediction._options import EXACT_LINKS
from keras_bdl.prediction._options import IDENTITY
from keras_bdl.prediction._options import MONTE_CARLO
from keras_bdl.prediction._options import PROBIT
from keras_bdl.prediction._outputs import DescribedOutput
from keras_bdl.prediction._sample_loop import stacked
from keras_bdl.prediction._sample_loop import unrolls_loops
from keras_bdl.prediction._stateless_call import stateless_call

# Number of values that the gradients of one layer may have at once.
_LARGEST = 2**24


def check_link(link: str | None, *, linearized: bool, samples: Any) -> None:
    """Raises an error if `link` does not fit the other arguments."""
    if link is None:
        return
    if not linearized:
        raise ValueError(
            "`link` needs a linearised network, whose outputs are Gaussian. "
            f"Pass `linearized=True`. Received: link={link!r}, linearized=False"
        )
    if link in EXACT_LINKS and samples is not None:
        raise ValueError(
            f"`samples` must be `None` with `link={link!r}`, which is a closed "
            f"form. Received: samples={samples!r}"
        )


def linked_values(
    output: DescribedOutput,
    link: str | None,
    gaussian: "OutputGaussian",
    key: Any,
    own: Any,
) -> dict[str, Any]:
    """Returns what a link makes of the Gaussian N(m, v) of an output.

    `"monte_carlo"` draws a sample by `key`. `"probit"` returns the logits

        m / sqrt(1 + pi / 8 v)                                            (1)

    `"identity"` returns m and v. If the target is the log of a rate, the rate
    is lognormal,

        mean = exp(m + v / 2),   variance = (exp(v) - 1) mean^2           (2)

    `own` is the output of the network itself; with a function `moments`, a
    dictionary of its mean and variance.
    """
    _check_task(output, link)
    value = gaussian.mean if link != MONTE_CARLO else gaussian.sample(key)
    if link == PROBIT:
        value /= ops.sqrt(1.0 + np.pi / 8 * gaussian.variance())  # (1)
    variance = gaussian.variance() if link == IDENTITY else None
    counts = output.likelihood.is_of_counts
    if isinstance(own, dict):
        terms = own | {"mean": value}
    elif output.is_regression and not counts:
        terms = output.likelihood.moments(own) | {"mean": value}
    elif variance is None:
        return output.linear_values(value, own)
    else:
        rate = ops.exp(value + variance / 2)  # (2)
        terms = output.values(rate)
        variance = ops.expm1(variance) * ops.square(rate)  # (2)
    return terms if variance is None else terms | {"between": variance}


def _check_task(output: DescribedOutput, link: str | None) -> None:
    if link == (PROBIT if output.is_regression else IDENTITY):
        task = "regression" if output.is_regression else "classifier"
        known = [IDENTITY if output.is_regression else PROBIT, MONTE_CARLO]
        raise ValueError(
            f"`link` of a {task} must be one of {known}. {output.name} is "
            f"one. Received: link={link!r}"
        )


def with_closed_form(
    averages: list[dict[str, Any]], link: str | None, outputs: Sequence
) -> list[dict[str, Any]]:
    """Returns averages with the variances that a link without samples has."""
    if link == IDENTITY:
        for average, values in zip(averages, outputs, strict=True):
            average["variance"] = values["between"][0]
    if link == PROBIT:
        # Only the mean has a closed form.
        for average in averages:
            for name in ("variance", "entropy"):
                # `nan * x` would make the gradient of the mean NaN.
                average[name] = ops.full_like(average[name], np.nan)
    return averages


@dataclasses.dataclass(frozen=True)
class OutputGaussian:
    """The Gaussian of one output, for each example.

    `roots` are tensors R of shape `(examples, n, k)` for n values of the
    output. The covariance is the sum of all `R R^T` and of `rest`.
    """

    mean: keras.KerasTensor
    roots: list[keras.KerasTensor]
    rest: keras.KerasTensor | None

    def variance(self) -> keras.KerasTensor:
        """Returns the variance of each value, in the shape of the mean."""
        total = tf.zeros_like(tf.reshape(self.mean, [-1, self._size]))
        for root in self.roots:
            # tf2onnx 1.17 gives squares of a transposed tensor a wrong shape.
            total += tf.einsum("enk,enk->en", root, root)
        if self.rest is not None:
            total += tf.linalg.diag_part(self.rest)
        return tf.reshape(total, [-1, *self.mean.shape[1:]])

    def sample(self, key: keras.KerasTensor) -> keras.KerasTensor:
        """Returns a sample, with the same noise for all examples."""
        total = tf.reshape(self.mean, [-1, self._size])
        for number, root in enumerate(self._all_roots()):
            noise = tf.random.stateless_normal(
                [root.shape[-1]], key + [0, number], dtype=root.dtype
            )
            total += tf.linalg.matvec(root, noise)
        return tf.reshape(total, [-1, *self.mean.shape[1:]])

    @property
    def _size(self) -> int:
        return math.prod(self.mean.shape[1:])

    def _all_roots(self) -> list:
        if self.rest is None:
            return self.roots
        covariance = self.rest
        for root in self.roots:
            covariance += tf.matmul(root, root, transpose_b=True)
        values, vectors = tf.linalg.eigh(covariance)
        # Rounding may make eigenvalues of 0 negative.
        stddevs = tf.sqrt(tf.maximum(values, 0.0))
        return [vectors * stddevs[:, None, :]]


@dataclasses.dataclass
class VariableBlock:
    """A block of the covariance of a Gaussian over weights."""

    variables: list  # the kernel and the bias, or the only variable
    inputs: keras.KerasTensor | None  # Q_A, or `None` for independent weights
    outputs: keras.KerasTensor | None  # Q_S, or `None`
    variance: keras.KerasTensor

    def whitened(self, gradients: dict[int, Any]) -> Any:
        """Returns the gradients times a root of the block."""
        found = [gradients[id(v)] for v in self.variables]
        stddev = tf.cast(tf.sqrt(self.variance), found[0].dtype)
        if self.inputs is None:
            rows = found[0] * stddev
        else:
            outs = stddev.shape[-1]
            rows = [
                tf.reshape(g, [-1, math.prod(g.shape[1:]) // outs, outs])
                for g in found
            ]
            rows = tf.concat(rows, axis=1)
            if self.outputs is not None:
                rows = _turned(rows, self.outputs)
            rows = tf.einsum("bio,ij->bjo", rows, _as(self.inputs, rows))
            rows *= stddev
        return tf.reshape(rows, [-1, math.prod(rows.shape[1:])])

    def root_of_product(self, a: Any, dz: Any) -> Any:
        """Returns a root of the covariance of the outputs of a product.

        With `z = a W`, a row of the root is

            R_k = (Q_S^T dz)_k sqrt(v_k),  v_k = sum_j (Q_A^T a)_j^2 V_jk (1)
        """
        variance = _as(self.variance, a)
        variance = tf.reshape(variance, [-1, dz.shape[-1]])
        if self.inputs is not None:
            a = tf.matmul(a, _as(self.inputs, a))
            if self.outputs is not None:
                dz = _turned(dz, self.outputs)
        v = tf.matmul(tf.square(a), variance)
        return tf.transpose(dz * tf.sqrt(v), [1, 0, 2])  # (1)


def _as(tensor: Any, other: Any) -> Any:
    return tf.cast(tensor, other.dtype)


def _turned(rows: Any, basis: Any) -> Any:
    return tf.einsum("...o,ok->...k", rows, _as(basis, rows))


def variable_blocks(
    trained: list, layout: Sequence[tuple], arrays: Sequence[keras.KerasTensor]
) -> list[VariableBlock]:
    """Returns the blocks of a covariance in terms of variables."""
    found = []
    arrays = list(arrays)
    for kind, *indices in layout:
        variables = [trained[i] for i in indices if i is not None]
        if kind == VARIANCE:
            found.append(VariableBlock(variables, None, None, arrays.pop(0)))
        elif kind == COLUMNS:
            inputs, variance = arrays.pop(0), arrays.pop(0)
            found.append(VariableBlock(variables, inputs, None, variance))
        else:
            found.append(VariableBlock(variables, *arrays[:3]))
            del arrays[:3]
    return found


def output_gaussians(
    model: keras.Model,
    inputs: Any,
    values: Sequence[keras.KerasTensor],
    *,
    layout: Sequence[tuple],
    covered: Sequence[int],
    arrays: Sequence[keras.KerasTensor],
    outputs_of: Callable[[Any], list],
) -> list[OutputGaussian]:
    """Returns the Gaussian of each output of a linearised network.

    With weights `w ~ N(m, C)`, the linearised network
    `f(x, m) + J(x) (w - m)` has the outputs

        N(f(x, m), J(x) C J(x)^T)                                         (1)

    For a layer that multiplies one vector by its matrix, J is never formed:
    `VariableBlock.root_of_product` has R with `J C J^T = R R^T`.
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


def _gaussians(
    model: keras.Model,
    inputs: Any,
    values: Sequence,
    blocks: list[VariableBlock],
    uncertain: list,
    *,
    outputs_of: Callable,
) -> list[OutputGaussian]:
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


def _check_sizes(outputs: list) -> None:
    for output in outputs:
        if None in output.shape[1:]:
            raise ValueError(
                "`link` needs outputs of a fixed size. Use an input shape "
                "without `None`, or leave `link` out. "
                f"Received: an output of shape {tuple(output.shape)}"
            )


def _covariance(
    capture: Capture, tape: Any, outputs: Any, blocks: list[VariableBlock]
) -> tuple[list, Any]:
    """Returns the roots and the rest of the covariance of the outputs."""
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


def _cotangents(tape: Any, outputs: Any, places: list) -> list:
    """Returns the gradients of each output, `(n, examples, ...)` a place."""
    count = outputs.shape[1]

    def gradients(k: Any) -> Any:
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


def _roots_of_product(
    layer: Any, rule: Any, calls: list, blocks: list[VariableBlock]
) -> list | None:
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


def _explicit(
    layer: Any, rule: Any, calls: list, blocks: list[VariableBlock]
) -> Any:
    """Returns `J C J^T` of one layer from the gradients of each example."""
    count, dtype = calls[0][1].shape[0], calls[0][1].dtype
    inputs = [x for x, _ in calls]
    # The examples on the first axis, like the inputs.
    cotangents = [_swapped(dz) for _, dz in calls]

    def of_examples(inputs: Any, cotangents: Any) -> Any:
        def whitened(k: Any) -> Any:
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

    def of_one_example(i: Any) -> Any:
        one = [rule.of_examples(x, lambda t: tf.gather(t, [i])) for x in inputs]
        return of_examples(one, [tf.gather(dz, [i]) for dz in cotangents])[0]

    def example_by_example() -> Any:
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


def _swapped(tensor: Any) -> Any:
    return tf.transpose(tensor, [1, 0, *range(2, len(tensor.shape))])
