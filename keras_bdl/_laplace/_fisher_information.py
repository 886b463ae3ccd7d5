"""The Fisher information of a model over data, for labels that it draws."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._backend import jvp
from keras_bdl._data._batches import example_batches
from keras_bdl._data._dataset_size import is_masked
from keras_bdl._laplace._last_layer import Head
from keras_bdl._laplace._last_layer import LastLayers
from keras_bdl._laplace._last_layer import added
from keras_bdl._laplace._last_layer import features_of
from keras_bdl._laplace._last_layer import heads_of
from keras_bdl._laplace._last_layer import recorded_calls
from keras_bdl._random._seeds import sequence
from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._capture import Plan
from keras_bdl.curvature._capture import current_values
from keras_bdl.curvature._captured_pass import Losses
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import gram
from keras_bdl.prediction._linear_pooling import linear_pooling
from keras_bdl.prediction._stateless_call import traced

# TensorFlow's message for a label outside the classes.
_LABEL = re.compile(r"label value of (-?\d+).*valid range of (\[.*?\))")


# How the expectation over labels is computed.
AUTO, EXPECTED, DRAWN = "auto", "expected", "drawn"

# `AUTO` computes the expectation for outputs with at most so many entries, and
# draws so many labels for each example of larger outputs.
EXACT_ENTRIES = 100
AUTO_SAMPLES = 32


class FisherInformation:
    """The Fisher information of a model, summed over a data set.

    `options` is a function without arguments, called once the model is built.

    Attributes:
        model: The model.
        variables: Variables whose information is computed.
        examples: Number of examples.
        positions: Number of positions of an example, such as tokens, or `None`
            if it is not fixed or the model has several outputs.
        weight: Sum of the sample weights.
        log_likelihood: Log-likelihood of the labels in the data, or `None`.
        squares: Arrays with the sums of the diagonals; `None` for a variable
            in a matrix.
        matrices: A `WeightMatrix` with summed factors for each matrix.
        drawn: Number of labels drawn for each example with `labels="auto"`, or
            `None` if the sums are exact.
        errors: Relative standard errors of the sums, each in the Frobenius
            norm, if `drawn` is a number.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        variables: Callable[[keras.Model], tuple[list, set[int]]],
        scores: Any,
        labels: str,
        label_samples: int,
        factored: bool,
        fallback: bool | str,
        loss: Loss | None,
        keeps_features: bool,
    ):
        self.model = model
        self._choose_variables = variables
        self.variables: list = []
        self._columns: set[int] = set()
        self._scores = scores
        self._labels = labels
        self._label_samples = label_samples
        self._factored = factored
        self._fallback = fallback
        self._loss = loss
        self._keeps_features = keeps_features
        self._losses: Any = None
        self._function: Any = None
        self._heads: Any = None
        self._closed: Any = None  # the `LastLayers` of `_heads`
        self._bases: dict[int, tuple] = {}
        self.positions: int | None = None
        self.drawn: int | None = None

    def sum_over(
        self,
        data: Data,
        *,
        batch_size: int | None,
        seed: int,
        verbose: int,
        posterior: Any = None,
    ) -> None:
        """Computes the sums over one pass of the data.

        `seed` is that of drawn labels. With a posterior, the information of
        each batch is that of the linearised network at a sample of it. If the
        features of the last layers are in memory, no data are read.
        """
        self.squares: list[np.ndarray | None] = []
        self.matrices: list[WeightMatrix] = []
        closed = self._closed
        if closed is not None:
            closed.begin(posterior)
            if closed.kept is not None:
                for index, (features, weight) in enumerate(closed.kept):
                    closed.add(features, weight, int(_key(seed, index)[0]))
                self._check(*self._sums_of_features())
                return
        self.examples, self.weight = 0, 0.0
        batches, number = example_batches(data, batch_size)
        bar = keras.utils.Progbar(number, verbose=verbose)
        totals: Any = None
        for index, batch in enumerate(batches):
            if self._function is None:
                self._prepare(batch.inputs["x"])
            key = _key(seed, index)
            direction = None
            if self._closed is None:
                direction = self._step_to_sample(posterior, int(key[0]))
            weight = self._weights_of(batch)
            sums, features = self._sums(
                batch, weight, key.view(np.int32), direction
            )
            if self._heads is not None:
                self._add_features(features, weight, int(key[0]), number)
            # The sums stay on the device, because they may be large.
            totals = sums if totals is None else added(totals, sums)
            bar.update(index + 1, finalize=False)
        bar.update(index + 1, finalize=True)
        self._keep(totals)

    def basis_of(self, matrix: WeightMatrix) -> tuple[np.ndarray, np.ndarray]:
        """Returns eigenvalues and eigenvectors of A / sum_i omega_i.

        A refinement from features in memory has the A of the first pass.
        """
        found = self._bases.get(id(matrix.kernel))
        if found is None or found[0] is not matrix.inputs:
            a = np.asarray(matrix.inputs / self.weight, "float64")
            found = matrix.inputs, np.linalg.eigh(a)
            self._bases[id(matrix.kernel)] = found
        return found[1]

    def _add_features(
        self, features: list, weight: np.ndarray, seed: int, number: int | None
    ) -> None:
        if self._closed is None:
            self._closed = LastLayers(
                self.model,
                self._heads,
                factored=self._factored,
                keep=self._keeps_features,
                batches=number,
            )
            self._closed.begin(None)
        features = [np.asarray(a) for a in features]
        if any(len(a) != len(weight) for a in features):
            raise ValueError(
                "`model` must have outputs whose first axis is the examples of "
                f"the batch. Received: {len(features[0])} rows in the last "
                f"layer for {len(weight)} examples"
            )
        self._closed.remember(features, weight)
        self._closed.add(features, weight, seed)

    def _prepare(self, x: Any) -> None:
        if not self.model.built:
            self.model(keras.tree.map_structure(lambda x: x[:1], x))
        self.variables, self._columns = self._choose_variables(self.model)
        self._losses = Losses(self.model, self._loss)
        self._function = traced(self.model, self._call)

    def _step_to_sample(self, posterior: Any, seed: int) -> list | None:
        """Returns a sample minus the mean, for each of `variables`."""
        if posterior is None:
            return None
        trained = self.model.trainable_variables
        difference = {
            id(variable): tf.constant(value - mean, variable.dtype)
            for variable, value, mean in zip(
                trained, posterior.sample(seed), posterior.mean(), strict=True
            )
        }
        return [difference[id(v)] for v in self.variables]

    def _weights_of(self, batch: Any) -> np.ndarray:
        """Returns the weights of the examples of one batch, and counts them."""
        named = batch.inputs
        rows = len(keras.tree.flatten(named["x"])[0])
        # The padding examples at the end of a batch have weight 0.
        weight = np.zeros(rows, "float32")
        weight[: batch.size] = named.get("weight", weight + 1.0)[: batch.size]
        if weight.min() < 0:
            raise ValueError(
                "`data` must not have negative sample weights. "
                f"Received: a sample weight {weight.min():g}"
            )
        self.examples += batch.size
        self.weight += float(weight.sum(dtype="float64"))
        return weight

    def _sums(
        self, batch: Any, weight: Any, key: Any, direction: list | None
    ) -> tuple:
        """Returns the sums over one batch, and the features of heads."""
        x, y = batch.inputs["x"], batch.inputs.get("y")
        try:
            return self._function(x, y, weight, key, direction)
        except tf.errors.InvalidArgumentError as error:
            label = _LABEL.search(str(error))
            if label is None:
                raise
            raise ValueError(
                f"`data` must have labels in {label[2]}, the classes of the "
                f"model. Received: a label {label[1]}"
            ) from None

    def _call(
        self, x: Any, y: Any, weight: Any, key: Any, direction: list | None
    ) -> tuple:
        x, y = keras.tree.map_structure(
            lambda t: None if t is None else tf.convert_to_tensor(t), (x, y)
        )
        key = tf.convert_to_tensor(key)
        logits = None if direction is None else self._logits(x, direction)
        found = fisher_sums(
            self.model,
            x,
            omega=tf.convert_to_tensor(weight),
            scores=functools.partial(self._vectors, key, logits),
            pairs=None if self._labels == DRAWN else self._scores.pairs,
            variables=self.variables,
            columns=self._columns,
            factored=self._factored,
            fallback=self._fallback,
        )
        self._heads = found.heads
        if found.heads is not None:
            self._check_outputs(found.outputs)
        # A trace returns only tensors. This list holds the variables.
        self._layout = [
            dataclasses.replace(m, inputs=None, outputs=None)
            for m in found.factors
        ]
        log_likelihood = None
        if y is not None:
            loss = self._losses.of_observations(y, found.outputs, weight)
            examples = tf.cast(tf.shape(weight)[0], loss.dtype)
            log_likelihood = -loss * examples
        factors = [(m.inputs, m.outputs) for m in found.factors]
        sums = log_likelihood, found.squares, factors, found.noise
        return sums, found.features

    def _logits(self, x: Any, direction: list) -> list:
        """Returns the logits of the linearised network at a sample."""
        variables = self.variables
        values = current_values(variables)

        def center() -> list:
            scope = keras.StatelessScope(zip(variables, values, strict=True))
            xla = bool(self.model.jit_compile)
            with scope, linear_pooling(self.model, xla=xla):
                outputs = self.model(x, training=False)
            return self._scores.logits(outputs)

        logits, products = jvp(center, values, direction)
        return [sum(pair) for pair in zip(logits, products, strict=True)]

    def _vectors(self, key: Any, logits: list | None, outputs: Any) -> tuple:
        self._check_outputs(outputs)
        samples = self._label_samples if self._labels == DRAWN else None
        if self._labels == AUTO:
            entries = sum(
                math.prod(size for size in output.shape[1:] if size is not None)
                for output in keras.tree.flatten(outputs)
            )
            samples = AUTO_SAMPLES if entries > EXACT_ENTRIES else None
            self.drawn = samples
        count, score = self._scores.vectors(
            outputs, samples=samples, seed=key, at=logits
        )
        return count, score, self.drawn is not None

    def _check_outputs(self, outputs: Any) -> None:
        """Raises an error for masked outputs, and counts the positions."""
        if is_masked(outputs):
            raise ValueError(
                "`fit_laplace` needs outputs without a mask, because masked "
                "positions would count as data. Use sequences of one length, "
                "and layers without `mask_zero`. "
                f"Received: model={self.model.name!r} with masked outputs"
            )
        flat = keras.tree.flatten(outputs)
        sizes = [size for output in flat for size in output.shape[1:-1]]
        one = len(flat) == 1 and None not in sizes
        self.positions = math.prod(sizes) if one else None

    def _keep(self, totals: tuple) -> None:
        """Converts the sums to arrays, and checks them."""
        log_likelihood, squares, factors, noise = keras.tree.map_structure(
            lambda t: None if t is None else np.asarray(t), totals
        )
        self.log_likelihood = (
            None if log_likelihood is None else float(log_likelihood)
        )
        if self._closed is not None:
            squares, matrices = self._sums_of_features()
        else:
            matrices = [
                dataclasses.replace(m, inputs=inputs, outputs=outputs)
                for m, (inputs, outputs) in zip(
                    self._layout, factors, strict=True
                )
            ]
            sums = [m.outputs for m in matrices]
            sums += [one for one in squares if one is not None]
            self.errors = [
                float(np.sqrt(max(n, 0.0)) / max(np.linalg.norm(s), 1e-30))
                for n, s in zip(noise, sums, strict=False)
            ]
        self._check(squares, matrices)

    def _sums_of_features(self) -> tuple[list, list[WeightMatrix]]:
        """Returns the squares and the matrices of last layers."""
        squares, matrices = self._closed.end()
        return [squares.get(id(v)) for v in self.variables], matrices

    def _check(self, squares: list, matrices: list[WeightMatrix]) -> None:
        """Keeps the sums if they are finite, or raises an error."""
        self.squares, self.matrices = squares, matrices
        sums = [*squares, *[s for m in matrices for s in (m.inputs, m.outputs)]]
        if not all(np.all(np.isfinite(s)) for s in sums if s is not None):
            raise ValueError(
                "The Fisher information is NaN or infinite. Check that the "
                "training did not diverge, and that `from_logits` of the loss "
                "is right. "
                f"Received: model={self.model.name!r}, "
                f"loss={self._loss or self.model.loss}"
            )


def _key(seed: int, batch: int) -> np.ndarray:
    return sequence(seed, batch).generate_state(2, np.uint32)


class FisherSums(NamedTuple):
    """Sums of Fisher information over the examples of a batch.

    `squares` has for each variable the diagonal of (1) of `fisher_sums`, or
    `None` if `factors` contains the variable. `noise` has the variance that
    drawn labels give each of the outer factors and then of the squares, if it
    is measured. With closed forms, all these are empty, and `features` has the
    inputs of `heads`.
    """

    outputs: Any
    squares: list
    factors: list[WeightMatrix]
    noise: list
    heads: list[Head] | None
    features: list


# Autograph would rewrite this ordinary Python.
@tf.autograph.experimental.do_not_convert
def fisher_sums(
    model: keras.Model,
    x: Any,
    *,
    omega: Any,
    scores: Callable,
    pairs: Callable | None,
    variables: list,
    columns: set[int],
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
    outputs that returns K, a function from k, an integer tensor, to the v_ik
    of all examples, a list with a tensor for each flat output, and whether to
    measure the noise of drawn labels. `factored` says whether matrices get (2)
    and (3) instead of a diagonal.

    The model runs forward once and backward K times, with `training=False`. No
    variable is assigned. The sums have float32 or higher precision. `pairs` is
    a function from the outputs to their scores and tensors, if closed forms may
    replace the backward passes. Matrices whose kernel has its `id` in `columns`
    get the diagonal of (3) alone.
    """
    plan = Plan(model, fallback=fallback, variables=variables)
    # Read before the tape: the tape reports each read outside of a layer.
    values = current_values(plan.variables)
    tape = tf.GradientTape(persistent=True)
    with tape:
        examples = ops.shape(omega)[0]
        capture = Capture(plan, values, tape, examples=examples, pure=True)
        with (
            recorded_calls(model, [layer for layer, _ in plan.rules]) as calls,
            capture.recording(),
            capture.forward(),
        ):
            outputs = _keras.call_with_training(model, x, training=False)
    heads = None
    if pairs is not None:
        heads = heads_of(capture, calls, pairs(outputs), tape)
    if heads is not None:
        features = features_of(heads, capture)
        return FisherSums(outputs, [], [], [], heads, features)
    backward = _Backward(capture, tape, outputs, omega, columns, factored)
    # The tape is closed, so no gradient flows through the scores.
    count, score, measures = scores(outputs)
    backward.measures = measures
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
    names = [id(m.kernel) for m in factors]
    names += [
        id(v)
        for v, square in zip(plan.variables, squares, strict=True)
        if square is not None
    ]
    # The variance of a sum of K independent terms t, by their scatter.
    noise = [
        (sums[-n] - ops.sum(ops.square(sums[n])) / count)
        * (count / (count - 1))
        for n in names
        if measures
    ]
    return FisherSums(outputs, squares, factors, noise, None, [])


class _Backward:
    """Adds the terms of one vector v to the sums of `fisher_sums`.

    The equations (1) to (3) are those of `fisher_sums`. `_matrices` has for the
    `id` of each layer its matrices, with (2). If `measures`, the sums contain
    the squared norms of the terms, too, by minus the `id`.
    """

    def __init__(
        self,
        capture: Capture,
        tape: tf.GradientTape,
        outputs: Any,
        omega: Any,
        columns: set[int],
        factored: bool,
    ):
        self._capture = capture
        self._tape = tape
        self._outputs = outputs
        self._omega = omega
        self._columns = columns
        self.measures = False
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
        shapes: list[tuple] = [
            (m.kernel, (2 - (id(m.kernel) in self._columns)) * m.shape[1:])
            for m in matrices
        ]
        shapes += [
            (v, v.shape)
            for v in self._capture.plan.variables
            if id(v) not in covered
        ]
        sums = {id(v): tf.zeros(s, _precision_of(v)) for v, s in shapes}
        if self.measures:
            sums |= {-n: tf.zeros((), one.dtype) for n, one in sums.items()}
        return sums

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
                if key not in sums:
                    continue
                term = tf.cast(term, sums[key].dtype)
                sums[key] += term
                if self.measures:
                    sums[-key] += ops.sum(ops.square(term))
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
            if id(matrix.kernel) in self._columns:
                omega = ops.cast(self._omega, dz.dtype)[:, None, None]
                s = ops.sum(omega * ops.square(dz), axis=(0, 1))
            else:
                s = self._gram(dz)
            yield matrix.kernel, s / positions  # (3)
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
