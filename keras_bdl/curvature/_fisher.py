"""The Fisher information of a batch, for labels drawn from the model."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._layer_factors import KroneckerFactors
from keras_bdl.curvature._layer_factors import gram
from keras_bdl.curvature._plan import Plan
from keras_bdl.curvature._reductions import joined_positions
from keras_bdl.curvature._weight_scope import current_values


@dataclasses.dataclass
class FisherSums:
    """Sums of Fisher information over the examples of a batch.

    `fisher_sums` returns an object of this class.

    Attributes:
        outputs: The outputs of the model.
        squares: For each variable, the diagonal of (1) of `fisher_sums`, or
            `None` if `factors` contains the variable.
        factors: `KroneckerFactors` that are sums over the examples instead of
            means.
    """

    outputs: Any
    squares: list
    factors: list[KroneckerFactors]


# Autograph would rewrite this ordinary Python.
@tf.autograph.experimental.do_not_convert
def fisher_sums(
    model: keras.Model,
    x: Any,
    *,
    omega: tf.Tensor,
    scores: Callable,
    variables: list,
    factored: bool,
    fallback: bool | str,
) -> FisherSums:
    """Returns sums of Fisher information over the examples of a batch.

    With J_i the Jacobian of the outputs for example i with respect to the
    weights, and v_i1 ... v_iK vectors in the space of the outputs,

        F = sum_i omega_i sum_k (J_i^T v_ik) (J_i^T v_ik)^T               (1)

    is the Fisher information of the weights, if `sum_k v_ik v_ik^T` is the
    Fisher information of the distribution over labels with respect to the
    outputs. The Kronecker factors of F are

        A = sum_i omega_i sum_p a_ip a_ip^T                               (2)
        S = 1/P sum_i omega_i sum_k sum_p dz_ikp dz_ikp^T                 (3)

    with inputs a and cotangents dz at P positions, as in `KroneckerFactors`.
    The model runs forward once and backward K times, with `training=False`. No
    variable is assigned.

    Args:
        model: A built Keras model.
        x: A batch of inputs.
        omega: The weights of the examples, a float tensor.
        scores: Function of the outputs that returns K and a second function.
            The second function takes k, an integer tensor, and returns the v_ik
            of all examples i: a list with a tensor for each flat output.
        variables: The weights. `fallback` says what happens to those of layers
            without a rule.
        factored: Whether matrices get (2) and (3) instead of a diagonal.
        fallback: What to do with layers that have no rule, see `step`.

    Returns:
        The sums, in float32 or higher precision.
    """
    plan = Plan(model, fallback=fallback, variables=variables)
    # Read before the tape: the tape reports each read outside of a layer.
    values = current_values(plan.variables)
    tape = tf.GradientTape(persistent=True)
    with tape:
        examples = ops.shape(omega)[0]
        capture = Capture(plan, values, tape, examples=examples, pure=True)
        with capture.recording(), capture.forward():
            outputs = _keras.call_with_training(model, x, training=False)
    backward = _Backward(capture, tape, outputs, omega, factored)
    # The tape is closed, so no gradient flows through the scores.
    count, score = scores(outputs)
    _, sums = tf.while_loop(
        lambda k, sums: k < count,
        lambda k, sums: (k + 1, backward(score(k), sums)),
        (tf.constant(0), backward.zeros()),
        # Each parallel iteration would need its own memory.
        parallel_iterations=1,
        maximum_iterations=count,
    )
    factors = [
        KroneckerFactors(m.kernel, m.bias, inputs, sums[id(m.kernel)])
        for found in backward.matrices.values()
        for m, inputs in found
    ]
    covered = {id(v) for matrix in factors for v in matrix.variables}
    squares = [
        None if id(v) in covered else sums[id(v)] for v in plan.variables
    ]
    return FisherSums(outputs, squares, factors)


class _Backward:
    """Adds the terms of one vector v to the sums of `fisher_sums`.

    The equations (1) to (3) are those of `fisher_sums`.

    Args:
        capture: A `Capture` after the forward pass.
        tape: The tape that recorded the forward pass.
        outputs: The outputs of the model.
        omega: The weights of the examples.
        factored: Whether to compute (2) and (3) for matrices.

    Attributes:
        matrices: Dict from the `id` of a layer to a list of pairs, a `Matrix`
            and (2).
    """

    def __init__(self, capture, tape, outputs, omega, factored):
        self._capture = capture
        self._tape = tape
        self._outputs = outputs
        self._omega = omega
        self.matrices: dict[int, list] = {}
        # (2) needs no cotangents. The outputs z only give the shape.
        for layer, rule, calls in self._reached_layers(capture.outputs):
            found = capture.plan.matrices(layer, rule) if factored else []
            self.matrices[id(layer)] = [
                (matrix, self._inputs_of(matrix, calls)) for matrix in found
            ]

    def zeros(self):
        """Returns the sums before the first vector v.

        The sums are zeros, in a dict with the `id` of each variable as key.
        """
        matrices = [m for found in self.matrices.values() for m, _ in found]
        covered = {id(v) for matrix in matrices for v in matrix.variables}
        shapes = [(m.kernel, 2 * m.shape[1:]) for m in matrices]
        shapes += [
            (v, v.shape)
            for v in self._capture.plan.variables
            if id(v) not in covered
        ]
        return {id(v): tf.zeros(s, _precision_of(v)) for v, s in shapes}

    def __call__(self, v, sums):
        """Returns `sums` with the terms of v added, a part for each output."""
        sums = dict(sums)
        outputs = keras.tree.flatten(self._outputs)
        cotangents = self._tape.gradient(
            outputs,
            self._capture.outputs,
            output_gradients=[
                tf.cast(part, output.dtype)
                for part, output in zip(v, outputs, strict=True)
            ],
        )
        for layer, rule, calls in self._reached_layers(cotangents):
            for variable, term in self._terms(layer, rule, calls):
                key = id(variable)
                if key in sums:
                    sums[key] += tf.cast(term, sums[key].dtype)
        return sums

    def _reached_layers(self, cotangents):
        with self._capture.computing_rules():
            for found in self._capture.calls_by_layer(cotangents):
                # Layers that the outputs do not depend on have no calls.
                if found[-1]:
                    yield found

    def _terms(self, layer, rule, calls):
        """Yields pairs of a weight and the term that v adds to its sum.

        A matrix with Kronecker factors appears under its kernel.
        """
        covered = set()
        for matrix, _ in self.matrices[id(layer)]:
            _, dz = _rows(matrix, calls)
            positions = ops.cast(ops.shape(dz)[1], dz.dtype)
            yield matrix.kernel, self._gram(dz) / positions  # (3)
            covered |= {id(v) for v in matrix.variables}
        weights = rule.weights(layer)
        if any(id(v) not in covered for v in weights):
            omega = ops.cast(self._omega, calls[0][1].dtype)
            moments = rule.moments(layer, calls, omega)
            for variable, (_, square) in zip(weights, moments, strict=True):
                if id(variable) not in covered:
                    yield variable, square  # (1)

    def _inputs_of(self, matrix, calls):
        a, _ = _rows(matrix, calls)
        if matrix.bias is not None:
            a = ops.concatenate([a, ops.ones_like(a[..., :1])], axis=-1)
        return self._gram(a)  # (2)

    def _gram(self, rows):
        root = ops.sqrt(ops.cast(self._omega, rows.dtype))
        return gram(rows * root[:, None, None])


def _rows(matrix, calls):
    """Returns inputs and cotangents of a matrix in all calls of its layer."""
    return joined_positions([matrix.rows(*call) for call in calls])


def _precision_of(variable):
    return "float64" if variable.dtype == "float64" else "float32"
