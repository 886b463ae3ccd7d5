"""Closed forms of the Fisher information of last layers, from their inputs."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._backend import compiled
from keras_bdl._memory import free_bytes
from keras_bdl._random._seeds import generator
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.curvature._capture import Capture
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import gram
from keras_bdl.curvature._rules._conv import ConvRule
from keras_bdl.curvature._rules._dense import DenseRule
from keras_bdl.curvature._rules._dense import positions_of
from keras_bdl.likelihoods import LearnedStddev

# More outputs get a diagonal factor S in place of a full one. On classifiers
# with 1,000 classes, the diagonal changed the variances of the logits by 0.2 to
# 0.4 %, and the 512 largest of 1,000 eigenvectors by 3 to 8 %.
FULL = 1024

# Most numbers of one tensor when batches are joined: 16 MiB in float32.
_JOINED = 2**22

# The layers that may follow a last layer.
_TAILS = (keras.layers.Activation, keras.layers.Softmax, LearnedStddev)


@dataclasses.dataclass
class Head:
    """A layer `z = a W + bias`, and the likelihood of its output z.

    Attributes:
        layer: A `Dense` layer, or a convolution with a window of size 1.
        matrix: The weights that are uncertain, as rows of one matrix.
        scores: The `Scores` of the output.
        tail: Function from z to the output of the model.
    """

    layer: Any
    matrix: WeightMatrix
    scores: Any
    tail: Any


@contextlib.contextmanager
def recorded_calls(
    model: keras.Model, layers: Iterable[keras.Layer]
) -> Iterator[list[tuple]]:
    """Yields a list that receives the calls of last layers inside a block.

    An entry is a layer, its input and its output. The list has the calls of
    `layers`, and of all layers that may follow a last layer.
    """
    calls: list[tuple] = []

    def run(layer: Any, call: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = call(*args, **kwargs)
        calls.append((layer, [*args, *kwargs.values()][0], outputs))
        return outputs

    # A subclass with another `call` computes another function.
    known = [tail.call for tail in _TAILS]
    tails = [one for one in _keras.all_layers(model) if type(one).call in known]
    with contextlib.ExitStack() as stack:
        for layer in (*layers, *tails):
            own = functools.partial(run, layer)
            stack.enter_context(replaced(layer, "call", own))
        yield calls


def heads_of(
    capture: Capture,
    calls: list[tuple],
    pairs: list[tuple[Any, Any]],
    tape: tf.GradientTape,
) -> list[Head] | None:
    """Returns the last layer of each output, or `None` without closed forms.

    `calls` are those of `recorded_calls`, and `pairs` the scores and the tensor
    of each output. A closed form needs an output that is a known function of z,
    and weights that have an effect on this output alone.
    """
    plan = capture.plan
    matrices = {
        id(layer): plan.matrices(layer, rule)
        for layer, rule in plan.rules
        if _is_product(layer, rule)
    }
    if not len(capture.calls) == len(plan.rules) == len(pairs):
        return None
    heads, places = [], []
    for scores, output in pairs:
        tensor, functions = _source(output), []
        for layer, inputs, outputs in reversed(calls):
            if _source(outputs) is not tensor:
                continue
            if id(layer) not in matrices and not _is_tail(layer):
                return None
            functions.append(_function_of(layer))
            if id(layer) in matrices:
                break
            tensor = _source(inputs)
        else:
            return None
        linear = keras.activations.linear
        tails = [f for f in functions if f is not linear] or [linear]
        if len(tails) > 1 or not scores.has_closed_form(tails[0]):
            return None
        (matrix,) = matrices[id(layer)] or (None,)
        own = [v for v in plan.variables if plan.owners[id(v)] is layer]
        if matrix is None or len(matrix.variables) != len(own):
            return None
        heads.append(Head(layer, matrix, scores, tails[0]))
        places += [c.outputs for c in capture.calls if c.layer is layer]
    for i, place in enumerate(places):
        others = [o for j, (_, o) in enumerate(pairs) if j != i]
        if others and tape.gradient(others, place) is not None:
            return None
    return heads if len({id(h.layer) for h in heads}) == len(pairs) else None


def features_of(heads: list[Head], capture: Capture) -> list:
    """Returns a of each head, `(examples, positions, in)`."""
    inputs = {id(call.layer): call.inputs for call in capture.calls}
    return [positions_of(inputs[id(head.layer)]) for head in heads]


def _is_product(layer: Any, rule: Any) -> bool:
    """Returns whether a layer multiplies each vector of its input by W."""
    # A subclass with another `call` may scale W.
    if type(rule) is DenseRule:
        return type(layer).call is keras.layers.Dense.call
    convolutions = keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D
    return (
        type(rule) is ConvRule
        and any(type(layer).call is one.call for one in convolutions)
        and layer.groups == 1
        and layer.data_format == "channels_last"
        and {*layer.kernel_size, *layer.strides} == {1}
    )


def _is_tail(layer: Any) -> bool:
    """Returns whether `_function_of` knows what a layer computes."""
    # A subclass with another `call` may compute anything.
    return any(type(layer).call is tail.call for tail in _TAILS)


def _function_of(layer: Any) -> Any:
    """Returns what a layer computes after the product, if any."""
    if isinstance(layer, keras.layers.Softmax):
        last = layer.axis in (-1, [-1], (-1,))
        return keras.activations.softmax if last else layer
    return layer if isinstance(layer, LearnedStddev) else layer.activation


def _source(tensor: Any) -> Any:
    """Returns the tensor before casts."""
    while tf.inside_function() and tensor.op.type in ("Cast", "Identity"):
        tensor = tensor.op.inputs[0]
    return tensor


def head_sums(
    head: Head,
    a: Any,
    omega: Any,
    noise: dict[str, Any] | None,
    *,
    factored: bool,
    with_inputs: bool,
) -> tuple[Any, Any]:
    """Returns the sums of a head over the examples of several batches.

    Let C be the Fisher information of z at one of P positions. With the input
    a, `1` in place of the bias, the sums of `fisher_sums` are

        A = sum_i omega_i sum_p a_ip a_ip^T                               (1)
        S = 1/P^2 sum_i omega_i sum_p C_ip                                (2)
        squares = 1/P sum_i omega_i sum_p a_ip^2 diag(C_ip)^T             (3)

    The result is (1) or `None`, and (2) or its diagonal or (3). `a` has the
    shape `(batches, examples, positions, in)` and `omega` `(batches,
    examples)`. With `noise`, z is that of a sample of W for each batch, see
    `LastLayers`.
    """
    matrix, outs = head.matrix, head.matrix.shape[1]
    precision = "float64" if matrix.kernel.dtype == "float64" else "float32"
    batches, _, positions, size = ops.shape(a)
    rows = ops.cast(ops.reshape(a, (batches, -1, size)), precision)
    kernel = ops.reshape(ops.convert_to_tensor(matrix.kernel), (-1, outs))
    z = tf.matmul(rows, ops.cast(kernel, precision)[None])
    if getattr(head.layer, "bias", None) is not None:
        z += ops.cast(ops.convert_to_tensor(head.layer.bias), precision)
    if matrix.bias is not None:
        rows = ops.concatenate([rows, ops.ones_like(rows[..., :1])], axis=-1)
    if noise is not None:
        z += _step(rows, **noise)
    rows = ops.reshape(rows, (-1, matrix.shape[0]))
    each = ops.repeat(ops.reshape(omega, (-1, 1)), positions, axis=0)
    each = ops.cast(each, precision)
    inputs = gram(rows * ops.sqrt(each)) if with_inputs else None  # (1)
    each /= ops.cast(positions, precision)
    diagonal, p = head.scores.curvature(ops.reshape(z, (-1, outs)), head.tail)
    diagonal *= each
    if not factored:
        return inputs, tf.matmul(ops.square(rows), diagonal, transpose_a=True)
    each /= ops.cast(positions, precision)
    diagonal = ops.sum(diagonal, axis=0) / ops.cast(positions, precision)
    if outs > FULL:
        return inputs, diagonal
    if p is None:
        return inputs, tf.linalg.diag(diagonal)
    # The difference `p - p^2` would lose all digits where p is close to 1.
    return inputs, tf.linalg.set_diag(
        -gram(p * ops.sqrt(each)), diagonal
    )  # (2)


def _step(
    rows: Any, *, draw: Any, stddev: Any, inputs: Any, outputs: Any
) -> Any:
    """Returns `a (W - M)` for a sample W, by standard normals `draw`."""
    if inputs is not None:
        rows = tf.matmul(rows, inputs[None])
        if outputs is None:
            # The columns are independent, and so are their products with a.
            variance = tf.matmul(ops.square(rows), ops.square(stddev)[None])
            return draw * ops.sqrt(variance)
    step = tf.matmul(rows, draw * stddev)
    if outputs is None:
        return step
    return tf.matmul(step, outputs[None], transpose_b=True)


class LastLayers:
    """The Fisher information of last layers, summed over their inputs.

    The inputs, the features, do not depend on the sample of the weights. They
    stay in memory while they fit into half of what is free, so that a
    refinement reads no data. The samples of a batch are one
    `posterior.sample`. With a diagonal factor S, each row a has a sample of its
    own, which needs far fewer random numbers than W.

    Attributes:
        kept: The features and sample weights of each batch, or `None` if they
            do not fit.
    """

    def __init__(
        self,
        model: keras.Model,
        heads: list[Head],
        *,
        factored: bool,
        keep: bool,
        batches: int | None,
    ):
        self.heads = heads
        self.kept: list[tuple[list, Any]] | None = [] if keep else None
        self._factored = factored
        self._batches = batches or 1
        trained = model.trainable_variables
        self._index = {id(v): i for i, v in enumerate(trained)}
        free = free_bytes()
        self._room = float("inf") if free is None else free / 2
        self._inputs: list | None = None
        sums: list[Any] = [
            functools.partial(head_sums, h, factored=factored) for h in heads
        ]
        if not model.run_eagerly:
            xla = True if model.jit_compile is True else None
            sums = [compiled(one, jit_compile=xla) for one in sums]
        self._sums = sums

    def remember(self, features: list, omega: np.ndarray) -> None:
        """Keeps the features of a batch if those of all batches fit."""
        if self.kept is None:
            return
        nbytes = sum(a.nbytes for a in features)
        if nbytes * max(self._batches, len(self.kept) + 1) > self._room:
            self.kept = None
        else:
            self.kept.append((features, omega))

    def begin(self, posterior: Any) -> None:
        """Starts new sums, at samples of a posterior or at the mean."""
        self._pending: list[tuple] = []
        self._totals: Any = None
        self._noise: Any = None
        if posterior is not None:
            blocks = {b.kernel: b for b in posterior.covariance_blocks()}
            self._noise = [self._noise_of(h, blocks) for h in self.heads]

    def _noise_of(self, head: Head, blocks: dict[int, Any]) -> dict[str, Any]:
        matrix = head.matrix
        block = blocks[self._index[id(matrix.kernel)]]
        stddev = block.values
        if not self._factored:
            parts = [blocks[self._index[id(v)]] for v in matrix.variables]
            shape = -1, matrix.shape[1]
            stddev = np.concatenate([b.values.reshape(shape) for b in parts])
        return {
            "stddev": tf.constant(np.sqrt(stddev)),
            "inputs": None
            if block.inputs is None
            else tf.constant(block.inputs),
            "outputs": (
                None if block.outputs is None else tf.constant(block.outputs)
            ),
        }

    def _draws(self, features: list, seed: int) -> list[np.ndarray]:
        """Returns the standard normals of a batch, for each head."""
        places: list[tuple] = []
        for number, (head, a) in enumerate(
            zip(self.heads, features, strict=True)
        ):
            variables = head.matrix.variables
            shapes = [v.shape for v in variables]
            if self._factored:
                size, outs = head.matrix.shape
                own = self._noise[number]["outputs"] is None
                shapes = [(a[..., 0].size if own else size, outs)]
            places += [
                (self._index[id(v)], number, shape)
                for v, shape in zip(variables, shapes, strict=False)
            ]
        rng = generator(seed)
        found: list[list] = [[] for _ in self.heads]
        for _, number, shape in sorted(places):
            dtype = self._noise[number]["stddev"].dtype.as_numpy_dtype
            found[number].append(rng.standard_normal(shape, dtype=dtype))
        return [
            np.concatenate([d.reshape(-1, h.matrix.shape[1]) for d in draws])
            for h, draws in zip(self.heads, found, strict=True)
        ]

    def add(self, features: list, omega: np.ndarray, seed: int) -> None:
        """Adds a batch, whose sample has a seed."""
        shapes = [a.shape for a in features]
        if self._pending and [a.shape for a in self._pending[0][0]] != shapes:
            self._flush()
        self._pending.append((features, omega, seed))
        largest = max(
            head.matrix.shape[1] * max(a[..., 0].size, head.matrix.shape[0])
            for head, a in zip(self.heads, features, strict=True)
        )
        if largest * len(self._pending) >= _JOINED:
            self._flush()

    def _flush(self) -> None:
        """Adds the batches that wait, all of one shape, to the sums."""
        features, omegas, seeds = zip(*self._pending, strict=True)
        self._pending = []
        noise: list = [None] * len(self.heads)
        if self._noise is not None:
            draws = zip(*map(self._draws, features, seeds), strict=True)
            noise = [
                {"draw": np.stack(own), **constants}
                if head.scores.depends_on_outputs
                else None
                for head, own, constants in zip(
                    self.heads, draws, self._noise, strict=True
                )
            ]
        sums = [
            function(
                np.stack(a),
                np.stack(omegas),
                own,
                with_inputs=self._factored and self._inputs is None,
            )
            for function, a, own in zip(
                self._sums, zip(*features, strict=True), noise, strict=True
            )
        ]
        self._totals = (
            sums if self._totals is None else added(self._totals, sums)
        )

    def end(self) -> tuple[dict[int, np.ndarray], list[WeightMatrix]]:
        """Returns the sums (3) by `id` of each variable, or the factors."""
        if self._pending:
            self._flush()
        outputs = [np.asarray(outputs) for _, outputs in self._totals]
        matrices = [head.matrix for head in self.heads]
        if not self._factored:
            return {
                id(v): np.reshape(part, v.shape)
                for m, squares in zip(matrices, outputs, strict=True)
                for v, part in zip(
                    m.variables,
                    np.split(squares, [m.kernel_shape[0]]),
                    strict=False,
                )
            }, []
        if self._inputs is None:
            self._inputs = [np.asarray(inputs) for inputs, _ in self._totals]
        return {}, [
            dataclasses.replace(m, inputs=a, outputs=s)
            for m, a, s in zip(matrices, self._inputs, outputs, strict=True)
        ]


def added(totals: Any, sums: Any) -> Any:
    """Returns nested sums plus those of another batch."""
    return keras.tree.map_structure(
        lambda a, b: None if a is None else a + b, totals, sums
    )
