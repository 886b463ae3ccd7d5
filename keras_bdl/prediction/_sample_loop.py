"""A function of all posterior samples in one graph."""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# Number of output values of the samples that are averaged together. More would
# leave the caches of a processor, and take a tenth to a quarter longer.
_USUAL = 2**20
# A few samples are averaged together up to this number.
_LARGEST = 2**22
_FEW = 4
# Assumed where the size of a batch is not known in the graph.
_LARGEST_BATCH = 2**12


def average_over_samples(
    function: Callable,
    fixed: Sequence[tf.Tensor],
    samples: Sequence[tf.Tensor],
    *,
    examples: Any,
    average: Callable,
    merge: Callable,
    in_one_part: bool = False,
) -> Any:
    """Returns the average of a function over samples of its arguments.

    Operations that no sample changes run once. The others run in a loop inside
    the graph. If they are one matrix product, such as a last layer, they run
    for all samples at once. Large outputs are averaged part by part.
    """
    if not samples:
        return average(_with_first_axis(function(fixed, [])))
    if tf.executing_eagerly():
        outputs = [
            function(fixed, [tensor[s] for tensor in samples])
            for s in range(len(samples[0]))
        ]
        return average(
            tf.nest.map_structure(lambda *rows: tf.stack(rows), *outputs)
        )
    split = SplitFunction(function, fixed, [tensor[0] for tensor in samples])
    shared = split.once(fixed)
    count = samples[0].shape[0] if unrolls_loops() else tf.shape(samples[0])[0]
    in_one_part = in_one_part or unrolls_loops()
    if not split.repeats:
        return average(_with_first_axis(split.for_sample(shared, [])))

    def outputs_of(start: Any, size: Any) -> Any:
        if split.products == 1 and not in_one_part:
            parts = [tensor[start : start + size] for tensor in samples]
            return tf.vectorized_map(
                lambda rows: split.for_sample(shared, rows), parts
            )
        return stacked(
            lambda s: split.for_sample(
                shared, [tf.gather(tensor, s) for tensor in samples]
            ),
            start,
            size,
            like=split.outputs,
        )

    if in_one_part or _are_small(split, samples, examples):
        return average(outputs_of(0, count))
    values = _values_of_a_sample(split, shared, samples, examples)
    size = tf.minimum(count, _samples_of_a_part(values))
    first = average(outputs_of(0, size))

    def add_part(done: Any, total: Any) -> Any:
        more = tf.minimum(size, count - done)
        part = average(outputs_of(done, more))
        return done + more, merge(total, part, done, more)

    _, total = tf.while_loop(
        lambda done, _: done < count,
        add_part,
        (size, first),
        shape_invariants=(
            tf.TensorShape([]),
            tf.nest.map_structure(lambda t: t.shape, first),
        ),
    )
    return total


def _with_first_axis(outputs: Any) -> Any:
    """Returns the outputs as those of one sample."""
    return tf.nest.map_structure(lambda t: tf.expand_dims(t, 0), outputs)


def _are_small(split: Any, samples: Any, examples: Any) -> Any:
    """Returns whether all outputs certainly fit into memory at once."""
    shapes = [spec.shape for spec in tf.nest.flatten(split.outputs)]
    count = samples[0].shape[0]
    if count is None or not all(s[1:].is_fully_defined() for s in shapes):
        return False
    largest = examples if isinstance(examples, int) else _LARGEST_BATCH
    values = sum(shape[1:].num_elements() for shape in shapes)
    return count * values * largest <= _LARGEST


def _samples_of_a_part(values: Any) -> Any:
    """Returns how many samples of a number of values to average together."""
    values = tf.maximum(values, 1)
    few = tf.minimum(_LARGEST // values, _FEW)
    return tf.cast(tf.maximum(tf.maximum(_USUAL // values, few), 1), tf.int32)


def _values_of_a_sample(
    split: Any, shared: Any, samples: Any, examples: Any
) -> Any:
    """Returns the number of output values of one sample."""
    shapes = [spec.shape[1:] for spec in tf.nest.flatten(split.outputs)]
    if all(shape.is_fully_defined() for shape in shapes):
        values = sum(shape.num_elements() for shape in shapes)
        return tf.cast(examples, tf.int64) * values
    outputs = split.for_sample(shared, [tensor[0] for tensor in samples])
    sizes = [tf.size(o, tf.int64) for o in tf.nest.flatten(outputs)]
    return tf.add_n(sizes)


_UNROLLED = contextvars.ContextVar("unrolled", default=False)


@contextlib.contextmanager
def unrolled_loops() -> Iterator[None]:
    """Writes out the loops of the graphs that are traced inside a block.

    LiteRT and ONNX cannot run the loops of TensorFlow, or run them slowly.
    """
    token = _UNROLLED.set(True)
    try:
        yield
    finally:
        _UNROLLED.reset(token)


def unrolls_loops() -> bool:
    """Returns whether `unrolled_loops` is in effect."""
    return _UNROLLED.get()


def stacked(function: Callable, start: Any, size: Any, like: Any) -> Any:
    """Returns the results of a function of an index, stacked on a new axis."""
    if not unrolls_loops():
        indices = tf.range(start, start + size)
        return tf.map_fn(function, indices, fn_output_signature=like)
    results = [function(i) for i in range(start, start + size)]
    return tf.nest.map_structure(lambda *rows: tf.stack(rows), *results)


_EXPENSIVE = ("MatMul", "Conv", "Einsum", "Call", "While", "If", "PyFunc")
_RANDOM = ("Random", "Normal", "Uniform", "Multinomial")


class SplitFunction:
    """Splits a function in two: a part for all samples, a part for each sample.

    The function is traced once. Operations that depend on a varying argument
    or draw random numbers without a seed must run for each sample. All other
    operations run once, and only those of their results are kept that the first
    group or the caller needs.

    The split works on single operations, so this class needs no code for
    particular layers, for subclassed models or for derivatives.

    Attributes:
        repeats: Whether any operation must run for each sample.
        products: Number of matrix products, convolutions and calls of other
            functions that run for each sample.
        outputs: A `tf.TensorSpec` for each tensor of the result, nested.
    """

    def __init__(
        self,
        function: Callable,
        fixed: Sequence[tf.Tensor],
        varying: Sequence[tf.Tensor],
    ):
        count = len(fixed)
        traced = tf.compat.v1.wrap_function(
            lambda *tensors: function(
                list(tensors[:count]), list(tensors[count:])
            ),
            [tf.TensorSpec(t.shape, t.dtype) for t in (*fixed, *varying)],
        )
        arguments = traced.inputs[: count + len(varying)]
        self._structure = traced.structured_outputs
        outputs = tf.nest.flatten(self._structure)
        repeated = _dependent(arguments[count:], outputs)
        # Tensors from outside of the function reach both parts by themselves.
        captured = {tensor.ref() for tensor in traced.graph.internal_captures}
        shared = _inputs_from_outside(repeated, outputs, captured)
        # Values that need no operation, such as weights, are passed on.
        given = {tensor.ref(): i for i, tensor in enumerate(arguments[:count])}
        self._given = [given.get(tensor.ref()) for tensor in shared]
        computed = [t for t in shared if t.ref() not in given]
        self._once = None
        if computed:
            self._once = _part(traced, arguments[:count], computed)
        self.repeats = bool(repeated)
        if self.repeats:
            self._for_sample = _part(
                traced,
                [*shared, *arguments[count:]],
                [tensor for tensor in outputs if tensor.op in repeated],
            )
        # For each output its place among the shared values, or `None`.
        places = {tensor.ref(): i for i, tensor in enumerate(shared)}
        self._places = [places.get(tensor.ref()) for tensor in outputs]
        self.products = sum(_multiplies(op) for op in repeated)
        self.outputs = tf.nest.map_structure(
            tf.TensorSpec.from_tensor, self._structure
        )

    def once(self, fixed: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the values that all samples share."""
        computed: Any = iter(())
        if self._once is not None:
            computed = iter(self._once(*fixed))
        return [next(computed) if i is None else fixed[i] for i in self._given]

    def for_sample(
        self, shared: Sequence[tf.Tensor], varying: Sequence[tf.Tensor]
    ) -> Any:
        """Returns the result of the function for one sample."""
        computed: Any = iter(())
        if self.repeats:
            computed = iter(self._for_sample(*shared, *varying))
        # A loop must own each of its outputs, hence `identity`.
        outputs = [
            next(computed) if place is None else tf.identity(shared[place])
            for place in self._places
        ]
        return tf.nest.pack_sequence_as(self._structure, outputs)


def _part(traced: Any, inputs: Any, outputs: Any) -> Any:
    # `prune` also copies what computes the inputs. That may need other outputs
    # of the same operations, so these are inputs, too.
    given = {tensor.ref() for tensor in inputs}
    beside = [
        tensor
        for op in dict.fromkeys(tensor.op for tensor in inputs)
        for tensor in op.outputs
        if tensor.ref() not in given
    ]
    part = traced.prune([*inputs, *beside], outputs)
    # Nobody needs the copies, and their own inputs have no value. A second
    # `prune` starts from inputs that nothing computes, and leaves them out.
    return part.prune(part.inputs[: len(inputs)], part.outputs)


def _dependent(sources: Any, outputs: Any) -> Any:
    """Returns the operations between the sources and the outputs."""
    if not sources:
        return set()
    graph = sources[0].graph
    dependent = {tensor.op for tensor in sources} | _drawing(graph)
    for op in graph.get_operations():
        # Operations are listed in the order of their creation.
        inputs = [tensor.op for tensor in op.inputs] + op.control_inputs
        if any(other in dependent for other in inputs):
            dependent.add(op)
    needed: set = set()
    waiting = [tensor.op for tensor in outputs]
    while waiting:
        op = waiting.pop()
        if op in dependent and op not in needed:
            needed.add(op)
            waiting.extend(tensor.op for tensor in op.inputs)
    return needed


def _inputs_from_outside(operations: Any, outputs: Any, captured: Any) -> Any:
    """Returns the tensors that the operations or the outputs take from others.

    Constants are left out: a copy of them keeps shapes static. Derivatives have
    constants that wait for other operations; a copy would copy those, too.
    """
    found: dict = {}
    # Any fixed order, the same in each process.
    for op in sorted(operations, key=lambda op: op.name):
        for tensor in op.inputs:
            free = tensor.op.type == "Const" and not tensor.op.control_inputs
            if (
                tensor.op not in operations
                and not free
                and tensor.ref() not in captured
            ):
                found[tensor.ref()] = tensor
    for tensor in outputs:
        if tensor.op not in operations:
            found[tensor.ref()] = tensor
    return list(found.values())


def _drawing(graph: Any) -> Any:
    """Returns the operations that draw other numbers in each run."""
    stateful = [op for op in graph.get_operations() if op.op_def.is_stateful]
    functions: set = set()
    if any(map(_called, stateful)):
        functions = _drawing_functions(graph)
    return {
        op for op in stateful if _is_random(op.type) or functions & _called(op)
    }


def _drawing_functions(graph: Any) -> Any:
    """Returns the names of functions that draw, also in functions inside."""
    library = graph.as_graph_def().library.function
    found: set = set()
    while True:
        more = {
            function.signature.name
            for function in library
            if any(
                _is_random(node.op) or found & _called(node)
                for node in function.node_def
            )
        }
        if more == found:
            return found
        found = more


def _is_random(kind: Any) -> Any:
    return not kind.startswith("Stateless") and any(
        word in kind for word in _RANDOM
    )


def _called(node: Any) -> Any:
    """Returns the names of the functions that a node of a graph calls.

    Such nodes are calls of a `tf.function`, loops and conditions.
    """
    values = getattr(node, "node_def", node).attr.values()
    return {
        function.name
        for value in values
        for function in (value.func, *value.list.func)
        if function.name
    }


def _multiplies(op: Any) -> Any:
    return any(word in op.type for word in _EXPENSIVE)
