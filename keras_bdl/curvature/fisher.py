"""The Fisher information of a batch, under labels from the model."""

import dataclasses

import tensorflow as tf
from keras import ops

from keras_bdl.curvature.capture import Capture
from keras_bdl.curvature.captured_pass import call_model
from keras_bdl.curvature.factors import KroneckerFactors
from keras_bdl.curvature.factors import gram
from keras_bdl.curvature.plan import Plan
from keras_bdl.curvature.weight_scope import current_values


@dataclasses.dataclass
class FisherSums:
    """What `fisher_sums` returns.

    Attributes:
        outputs: Of the model.
        squares: Diagonals of (1), in the order of the variables; `None` for
            one that `factors` are of.
        factors: A list of `KroneckerFactors` that are sums over the
            examples, and not means.
    """

    outputs: object
    squares: list
    factors: list[KroneckerFactors]


# What is run here is ordinary Python.
@tf.autograph.experimental.do_not_convert
def fisher_sums(
    model, x, omega, scores, *, variables, factored: bool, fallback: bool
):
    """Runs a model forward once and backward K times.

    With J_i the Jacobian of the outputs for example i by the weights, and
    v_i1 ... v_iK vectors in the space of the outputs,

        F = sum_i omega_i sum_k (J_i^T v_ik) (J_i^T v_ik)^T               (1)

    is the Fisher information where `sum_k v_ik v_ik^T` is that of the
    distribution which the outputs stand for. Its Kronecker factors are

        A = sum_i omega_i sum_p a_ip a_ip^T                               (2)
        S = 1/P sum_i omega_i sum_k sum_p dz_ikp dz_ikp^T                 (3)

    with inputs a, cotangents dz at P positions, as in `KroneckerFactors`. The
    model runs as in inference and nothing in it is assigned.

    Args:
        model: A built Keras model.
        x: A batch of inputs.
        omega: The weights of the examples, a float tensor.
        scores: Takes the outputs and returns K and a function that takes k,
            an integer tensor, and returns all v_ik, a tensor like the outputs.
        variables: The weights, of which all layers are to have rules.
        factored: Whether matrices get (2) and (3) instead of a diagonal.
        fallback: Whether layers without a rule are differentiated example by
            example.

    Returns:
        A `FisherSums`, of float32 tensors at least.
    """
    plan = Plan(model, fallback, variables)
    # Read outside of the tape, which looks for those read past the layers.
    values = current_values(plan.variables)
    tape = tf.GradientTape(persistent=True)
    with tape:
        capture = Capture(plan, values, tape, pure=True)
        with capture.recording(), capture.forward():
            outputs = call_model(model, x, training=False)
    backward = _Backward(capture, tape, outputs, omega, factored)
    # The tape is closed, and takes the scores for constants.
    count, score = scores(outputs)
    _, sums = tf.while_loop(
        lambda k, sums: k < count,
        lambda k, sums: (k + 1, backward(score(k), sums)),
        (tf.constant(0), backward.zeros()),
        # More at a time would need as much more memory.
        parallel_iterations=1,
        maximum_iterations=count,
    )
    factors = [
        KroneckerFactors(m.kernel, m.bias, inputs, sums[id(m.kernel)])
        for m, inputs in backward.matrices.values()
    ]
    covered = {id(v) for matrix in factors for v in matrix.variables}
    squares = [
        None if id(v) in covered else sums[id(v)] for v in plan.variables
    ]
    return FisherSums(outputs, squares, factors)


class _Backward:
    """Adds up what the cotangents of the layers say, for one v after another.

    Args:
        capture: A `Capture` after the forward pass.
        tape: The tape around it.
        outputs: Of the model.
        omega: The weights of the examples.
        factored: Whether there are `matrices`.

    Attributes:
        matrices: By `id` of a layer, a `Matrix` and (2).
    """

    def __init__(self, capture, tape, outputs, omega, factored):
        self._capture = capture
        self._tape = tape
        self._outputs = outputs
        self._omega = omega
        self.matrices = {}
        # Any cotangents will do for (2), and z has their shape.
        for layer, rule, calls in self._reached_layers(capture.outputs):
            matrix = capture.plan.matrix(layer, rule) if factored else None
            if matrix is not None:
                a, _ = _rows(layer, rule, calls)
                if matrix.bias is not None:
                    a = ops.concatenate([a, ops.ones_like(a[..., :1])], axis=-1)
                self.matrices[id(layer)] = matrix, self._gram(a)  # (2)

    def zeros(self):
        """Returns the sums before the first v, by `id` of a variable."""
        matrices = [matrix for matrix, _ in self.matrices.values()]
        covered = {id(v) for matrix in matrices for v in matrix.variables}
        shapes = [(m.kernel, 2 * m.shape[1:]) for m in matrices]
        shapes += [
            (v, v.shape)
            for v in self._capture.plan.variables
            if id(v) not in covered
        ]
        return {id(v): tf.zeros(s, _precision_of(v)) for v, s in shapes}

    def __call__(self, v, sums):
        """Returns the sums with those of one v."""
        sums = dict(sums)
        cotangents = self._tape.gradient(
            self._outputs,
            self._capture.outputs,
            output_gradients=tf.cast(v, self._outputs.dtype),
        )
        for layer, rule, calls in self._reached_layers(cotangents):
            for variable, term in self._terms(layer, rule, calls):
                key = id(variable)
                if key in sums:
                    sums[key] += tf.cast(term, sums[key].dtype)
        return sums

    def _reached_layers(self, cotangents):
        examples = ops.shape(self._omega)[0]
        with self._capture.computing_rules():
            for found in self._capture.calls_by_layer(cotangents, examples):
                # The outputs may not depend on a layer.
                if found[-1]:
                    yield found

    def _terms(self, layer, rule, calls):
        """Yields pairs of a weight of a layer and what is to be added."""
        rest = rule.weights(layer)
        if id(layer) in self.matrices:
            matrix, _ = self.matrices[id(layer)]
            _, dz = _rows(layer, rule, calls)
            positions = ops.cast(ops.shape(dz)[1], dz.dtype)
            yield matrix.kernel, self._gram(dz) / positions  # (3)
            covered = {id(v) for v in matrix.variables}
            rest = [v for v in rest if id(v) not in covered]
        if rest:
            omega = ops.cast(self._omega, calls[0][1].dtype)
            moments = rule.moments(layer, calls, omega)
            squares = zip(rule.weights(layer), moments, strict=True)
            still = {id(v) for v in rest}
            for variable, (_, square) in squares:
                if id(variable) in still:
                    yield variable, square  # (1)

    def _gram(self, rows):
        root = ops.sqrt(ops.cast(self._omega, rows.dtype))
        return gram(rows * root[:, None, None])


def _rows(layer, rule, calls):
    """Returns inputs and cotangents of all calls of a layer."""
    rows = [rule.rows(layer, *call) for call in calls]
    return [
        parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=1)
        for parts in zip(*rows, strict=True)
    ]


def _precision_of(variable):
    return "float64" if variable.dtype == "float64" else "float32"
