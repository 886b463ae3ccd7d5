"""Functions of tensors, split into a shared part and a part for each sample."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

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

    Args:
        function: Function of two lists of tensors, `(fixed, varying)`. It
            returns nested tensors.
        fixed: Examples of the tensors that are the same for all samples. Only
            their shapes and dtypes are used.
        varying: Examples of the tensors that differ between samples. Only
            their shapes and dtypes are used.

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
        """Returns the values that all samples share.

        Args:
            fixed: The first argument of the function.
        """
        computed: Any = iter(())
        if self._once is not None:
            computed = iter(self._once(*fixed))
        return [next(computed) if i is None else fixed[i] for i in self._given]

    def for_sample(
        self, shared: Sequence[tf.Tensor], varying: Sequence[tf.Tensor]
    ) -> Any:
        """Returns the result of the function for one sample.

        Args:
            shared: The result of `once`.
            varying: The second argument of the function.
        """
        computed: Any = iter(())
        if self.repeats:
            computed = iter(self._for_sample(*shared, *varying))
        # A loop must own each of its outputs, hence `identity`.
        outputs = [
            next(computed) if place is None else tf.identity(shared[place])
            for place in self._places
        ]
        return tf.nest.pack_sequence_as(self._structure, outputs)


def _part(traced, inputs, outputs):
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


def _dependent(sources, outputs):
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


def _inputs_from_outside(operations, outputs, captured):
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


def _drawing(graph):
    """Returns the operations that draw other numbers in each run."""
    stateful = [op for op in graph.get_operations() if op.op_def.is_stateful]
    functions: set = set()
    if any(map(_called, stateful)):
        functions = _drawing_functions(graph)
    return {
        op for op in stateful if _is_random(op.type) or functions & _called(op)
    }


def _drawing_functions(graph):
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


def _is_random(kind):
    return not kind.startswith("Stateless") and any(
        word in kind for word in _RANDOM
    )


def _called(node):
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


def _multiplies(op):
    return any(word in op.type for word in _EXPENSIVE)
