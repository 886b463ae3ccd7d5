"""Rule for dense layers with an einsum equation."""

import functools
import math
import string
from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rules._dense import MatrixRule
from keras_bdl.curvature._rules._dense import positions_of


@register_rule(keras.layers.EinsumDense)
class EinsumDenseRule(MatrixRule):
    """Rule for `EinsumDense`, which `MultiHeadAttention` consists of.

    An index of the kernel is of one of three kinds: `in` if only the inputs
    have the index, `out` if only the outputs have the index, and a group if
    both have the index.
    """

    def constants(self, layer: Any) -> tuple:
        """Returns the equation, and the shapes of kernel and bias."""
        bias = None if layer.bias is None else layer.bias.shape
        return layer.equation, layer.kernel.shape, bias

    def groups(self, layer: Any) -> int:
        """Returns the number of groups, the product of the group sizes."""
        return math.prod(_Indices(layer).sizes("groups"))

    def blocks(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> Iterable[tuple[Any, Any]]:
        """Yields the only block."""
        indices = _Indices(layer, len(inputs.shape))
        yield (
            indices.sorted(in_full_precision(inputs), indices.x, "ins"),
            indices.sorted(cotangents, indices.out, "outs"),
        )

    def kernel_of_blocks(self, layer: Any, blocks: list) -> Any:
        """Returns the block, with its axes in the order of the kernel."""
        (block,) = blocks
        indices = _Indices(layer)
        rank = len(block.shape) - 3
        kinds = ("groups", "ins", "outs")
        sizes = [size for kind in kinds for size in indices.sizes(kind)]
        block = ops.reshape(block, (*ops.shape(block)[:rank], *sizes))
        letters = "".join(getattr(indices, kind) for kind in kinds)
        order = [rank + letters.index(c) for c in indices.kernel]
        return ops.transpose(block, [*range(rank), *order])

    def bias_per_example(self, layer: Any, cotangents: Any) -> Any:
        """Returns the sums over the axes that share the bias."""
        shape = layer.bias.shape
        # The bias is broadcast to the last axes.
        first = len(cotangents.shape) - len(shape)
        total = ops.sum(cotangents, axis=list(range(1, first)))
        same = [
            1 + i
            for i, size in enumerate(shape)
            if size == 1 and total.shape[1 + i] != 1
        ]
        return ops.sum(total, axis=same, keepdims=True) if same else total

    def matrices(self, layer: Any) -> list[WeightMatrix]:
        """Returns the kernel if it has the axes `in`, then `out`.

        The bias is a row of the matrix if it has the indices of `out`.
        """
        indices = _Indices(layer)
        if indices.kernel != indices.ins + indices.outs:
            return []
        bias, outs = layer.bias, indices.sizes("outs")
        if bias is not None and not (
            indices.out.endswith(indices.outs)
            and list(bias.shape) == list(outs)
        ):
            bias = None
        shape = math.prod(indices.sizes("ins")), math.prod(outs)
        rows = functools.partial(self.rows, layer)
        return [WeightMatrix(layer.kernel, bias, shape, rows)]


class _Indices:
    """The indices of the equation of an `EinsumDense`, by their role.

    An equation with `...` needs the rank of the inputs.

    Attributes:
        x: Indices of the inputs.
        kernel: Indices of the kernel.
        out: Indices of the outputs.
        groups: Indices of the kernel in both inputs and outputs.
        ins: Indices of the kernel in the inputs alone.
        outs: Indices of the kernel in the outputs alone.
    """

    def __init__(self, layer: Any, rank: int | None = None):
        operands, out = layer.equation.replace(" ", "").split("->")
        x, kernel = operands.split(",")
        if "..." in x and rank is not None:
            unused = [c for c in string.ascii_letters if c not in x + out]
            dots = "".join(unused[: rank - len(x.replace("...", ""))])
            x, out = x.replace("...", dots), out.replace("...", dots)
        self.x, self.kernel, self.out = x, kernel, out
        self._sizes = dict(zip(kernel, layer.kernel.shape, strict=True))
        self.groups = "".join(c for c in kernel if c in x and c in out)
        self.ins = "".join(c for c in kernel if c in x and c not in out)
        self.outs = "".join(c for c in kernel if c in out and c not in x)
        known = self.groups + self.ins + self.outs
        if x[0] != out[0] or x[0] in kernel or len(known) != len(kernel):
            raise ValueError(
                "Per-example curvature of `EinsumDense` needs an equation "
                "whose first index is the examples, and whose kernel has only "
                "indices of the inputs or the outputs. Rewrite the equation. "
                f"Received: equation={layer.equation!r} in {layer.name!r}"
            )

    def sizes(self, kind: str) -> list[int]:
        """Returns the sizes of the indices of a kind."""
        return [self._sizes[c] for c in getattr(self, kind)]

    def sorted(self, tensor: Any, letters: str, kind: str) -> Any:
        """Returns a tensor as `(examples * groups, positions, features)`."""
        features = getattr(self, kind)
        # The order of inputs and outputs may differ: take one for both.
        positions = [
            c for c in self.x[1:] if c in self.out and c not in self.kernel
        ]
        order = [letters[0], *self.groups, *positions, *features]
        # Like the forward pass, sum over indices that only the inputs have.
        tensor = ops.einsum(f"{letters}->{''.join(order)}", tensor)
        return positions_of(tensor, 1 + len(self.groups), len(features))
