"""The Fisher information of a batch, for labels drawn from the model."""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._plan import Plan
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import gram
from keras_bdl.curvature._weight_scope import current_values


class FisherSums(NamedTuple):
    """Sums of Fisher information over the examples of a batch.

    `squares` has for each variable the diagonal of (1) of `fisher_sums`, or
    `None` if `factors` contains the variable.
    """

    outputs: Any
    squares: list
    factors: list[WeightMatrix]


# Autograph would rewrite this ordinary Python.
@tf.autograph.experimental.do_not_convert
def fisher_sums(
    model: keras.Model,
    x: Any,
    *,
    omega: Any,
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

    with inputs a and cotangents dz at P positions, as in `WeightMatrix`.
    `omega` are the weights of the examples. `scores` is a function of the
    outputs that returns K and a function from k, an integer tensor, to the v_ik
    of all examples: a list with a tensor for each flat output. `factored` says
    whether matrices get (2) and (3) instead of a diagonal.

    The model runs forward once and backward K times, with `training=False`. No
    variable is assigned. The sums have float32 or higher precision.
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
        dataclasses.replace(m, outputs=sums[id(m.kernel)])
        for m in backward.all_matrices()
    ]
    covered = {id(v) for matrix in factors for v in matrix.variables}
    squares = [
        None if id(v) in covered else sums[id(v)] for v in plan.variables
    ]
    return FisherSums(outputs, squares, factors)


class _Backward:
    """Adds the terms of one vector v to the sums of `fisher_sums`.

    The equations (1) to (3) are those of `fisher_sums`. `_matrices` has for the
    `id` of each layer its matrices, with (2).
    """

    def __init__(
        self,
        capture: Capture,
        tape: tf.GradientTape,
        outputs: Any,
        omega: Any,
        factored: bool,
    ):
        self._capture = capture
        self._tape = tape
        self._outputs = outputs
        self._omega = omega
        self._matrices: dict[int, list[WeightMatrix]] = {}
        # (2) needs no cotangents. The outputs z only give the shape.
        for layer, rule, calls in self._reached_layers(capture.outputs):
            found = capture.plan.matrices(layer, rule) if factored else []
            self._matrices[id(layer)] = [
                dataclasses.replace(
                    m,
                    inputs=self._gram(m.rows_of_calls(calls)[0]),  # (2)
                )
                for m in found
            ]

    def all_matrices(self) -> list[WeightMatrix]:
        """Returns the matrices of all layers, with (2)."""
        return [m for found in self._matrices.values() for m in found]

    def zeros(self) -> dict[int, Any]:
        """Returns the sums before the first v, by `id` of each variable."""
        matrices = self.all_matrices()
        covered = {id(v) for matrix in matrices for v in matrix.variables}
        shapes = [(m.kernel, 2 * m.shape[1:]) for m in matrices]
        shapes += [
            (v, v.shape)
            for v in self._capture.plan.variables
            if id(v) not in covered
        ]
        return {id(v): tf.zeros(s, _precision_of(v)) for v, s in shapes}

    def __call__(self, v: list, sums: dict[int, Any]) -> dict[int, Any]:
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

    def _reached_layers(self, cotangents: list) -> Iterator[tuple]:
        with self._capture.computing_rules():
            for found in self._capture.calls_by_layer(cotangents):
                # Layers that the outputs do not depend on have no calls.
                if found[-1]:
                    yield found

    def _terms(
        self, layer: keras.Layer, rule: Rule, calls: list
    ) -> Iterator[tuple]:
        """Yields pairs of a weight and the term that v adds to its sum.

        A matrix with Kronecker factors appears under its kernel.
        """
        covered = set()
        for matrix in self._matrices[id(layer)]:
            _, dz = matrix.rows_of_calls(calls)
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

    def _gram(self, rows: Any) -> Any:
        root = ops.sqrt(ops.cast(self._omega, rows.dtype))
        return gram(rows * root[:, None, None])


def _precision_of(variable: Any) -> str:
    return "float64" if variable.dtype == "float64" else "float32"
