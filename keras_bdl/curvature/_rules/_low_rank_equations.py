"""The two products of an `EinsumDense` with a low-rank adapter (LoRA)."""

import dataclasses

import keras


@dataclasses.dataclass
class LowRankEquations:
    """The equations of the two products of an `EinsumDense` with an adapter.

    Attributes:
        first: The equation of the product with the inputs of the layer.
        second: The equation of the other product.
        a_first: Whether the first product is with A, the second with B.
    """

    first: str
    second: str
    a_first: bool


def low_rank_equations(
    layer: keras.layers.EinsumDense,
) -> LowRankEquations | None:
    """Returns the equations of the products with A and with B.

    A has the index r of the rank in place of the last index e of the kernel. B
    has the indices r and e. If only the outputs have e, A multiplies the inputs
    first: r takes the place of e in the outputs. If the inputs have e, B is
    first: r takes the place of e in the inputs, and e stays if the outputs have
    e, too. The result is `None` for other equations.

    Args:
        layer: The layer.
    """
    operands, out = layer.equation.replace(" ", "").split("->")
    x, kernel = operands.split(",")
    e = kernel[-1]
    r = next(c for c in "rstuvwxyz" if c not in x + kernel + out)
    a, b = f"{kernel[:-1]}{r}", f"{r}{e}"
    if e in x:
        if any(c not in kernel + out for c in x):
            return None
        hidden = x.replace(e, f"{e}{r}" if e in out else r)
        return LowRankEquations(
            f"{x},{b}->{hidden}", f"{hidden},{a}->{out}", False
        )
    if e not in out:
        return None
    hidden = out.replace(e, r)
    return LowRankEquations(f"{x},{a}->{hidden}", f"{hidden},{b}->{out}", True)
