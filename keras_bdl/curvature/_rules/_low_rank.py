"""Rules for layers with a low-rank adapter (LoRA)."""

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bdl.curvature._rule import ExampleSums
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import is_trained
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rules._conv import ConvRule
from keras_bdl.curvature._rules._conv import channels_last
from keras_bdl.curvature._rules._dense import DenseRule
from keras_bdl.curvature._rules._einsum_dense import EinsumDenseRule
from keras_bdl.curvature._rules._embedding import EmbeddingRule


@dataclasses.dataclass
class Product:
    """One of the two factors of an adapter, as a layer of its own.

    `rule` is the rule of a layer with the kernel `weight`, and `layer` has the
    attributes of such a layer that `rule` reads. `call` turns the inputs and
    the cotangents of the whole layer into those of this product.
    """

    rule: Rule
    layer: Any
    weight: keras.Variable
    call: Callable[[Any, Any], tuple[Any, Any]]


class LowRankRule(Rule):
    """Base of the rules for layers with `enable_lora`.

    Such a layer multiplies x by K + s A B, where the kernel K is frozen, and
    s is `lora_alpha / lora_rank`. Let dz be the cotangents of the outputs. The
    gradients with respect to A and B are those of two layers:

    - a layer with the kernel A, the inputs x and the cotangents s B dz,
    - a layer with the kernel B, the inputs s A^T x and the cotangents dz.
    """

    bias_rule: Any = None

    def products(self, layer: Any) -> list[Product]:
        """Returns the products with A and with B."""
        raise NotImplementedError

    def weights(self, layer: Any) -> list:
        """Returns A and B, and the bias if it is trained."""
        return [p.weight for p in self.products(layer)] + _bias_of(layer)

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
        """Returns the gradients of each example."""
        gradients = []
        for product in self.products(layer):
            call = product.call(inputs, cotangents)
            gradients += product.rule.per_example(product.layer, *call)
        if _bias_of(layer):
            bias = self.bias_rule.bias_per_example(layer, cotangents)
            gradients.append(bias)
        return gradients

    def moments(self, layer: Any, calls: list, example_weights: Any) -> list:
        """Returns the moments, as the rules of both products do."""
        moments = []
        for product in self.products(layer):
            parts = [product.call(*call) for call in calls]
            moments += product.rule.moments(
                product.layer, parts, example_weights
            )
        if _bias_of(layer):
            bias = sum(
                self.bias_rule.bias_per_example(layer, dz) for _, dz in calls
            )
            moments.append(ExampleSums(example_weights).of(bias))
        return moments

    def matrices(self, layer: Any) -> list[WeightMatrix]:
        """Returns the factors that are matrices."""
        found = []
        for product in self.products(layer):
            for matrix in product.rule.matrices(product.layer):
                rows = functools.partial(_rows_of_product, product, matrix.rows)
                found.append(dataclasses.replace(matrix, rows=rows))
        return found


def _rows_of_product(
    product: Product, rows: Callable, inputs: Any, cotangents: Any
) -> tuple[Any, Any]:
    return rows(*product.call(inputs, cotangents))


def _bias_of(layer: Any) -> list:
    bias = getattr(layer, "bias", None)
    return [] if bias is None or not is_trained(bias) else [bias]


def _scaled(layer: Any, factor: Any) -> Any:
    """Returns a factor of the adapter times s."""
    scale = layer.lora_alpha / layer.lora_rank
    return scale * in_full_precision(factor)


def _before(layer: Any, b: Any, inputs: Any, cotangents: Any) -> tuple:
    """Returns x and s B dz."""
    return inputs, ops.matmul(cotangents, ops.transpose(_scaled(layer, b)))


def _factor(variable: Any, **attributes: Any) -> types.SimpleNamespace:
    """Returns the attributes of a layer without a bias."""
    return types.SimpleNamespace(
        kernel=variable, bias=None, name=variable.path, **attributes
    )


@register_rule(keras.layers.EinsumDense, lora=True)
class LowRankEinsumDenseRule(LowRankRule):
    """Rule for an `EinsumDense` with an adapter, see `low_rank_equations`."""

    bias_rule = EinsumDenseRule()

    def weights(self, layer: Any) -> list:
        """Returns A and B; without these equations, no weights."""
        if low_rank_equations(layer) is None:
            return []
        return super().weights(layer)

    def products(self, layer: Any) -> list[Product]:
        """Returns the products with A and with B."""
        equations: Any = low_rank_equations(layer)
        first, second = layer.lora_kernel_a, layer.lora_kernel_b
        if not equations.a_first:
            first, second = second, first
        factors, out = equations.second.split("->")
        hidden, of_second = factors.split(",")

        def to_first(inputs: Any, dz: Any) -> tuple:
            return inputs, ops.einsum(
                f"{out},{of_second}->{hidden}", dz, _scaled(layer, second)
            )

        def to_second(inputs: Any, dz: Any) -> tuple:
            inputs = in_full_precision(inputs)
            scaled = _scaled(layer, first)
            return ops.einsum(equations.first, inputs, scaled), dz

        rule = EinsumDenseRule()
        products = [
            Product(rule, _factor(weight, equation=equation), weight, call)
            for weight, equation, call in (
                (first, equations.first, to_first),
                (second, equations.second, to_second),
            )
        ]
        return products if equations.a_first else products[::-1]


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


@register_rule(keras.layers.Dense, lora=True)
class LowRankDenseRule(LowRankRule):
    """Rule for a `Dense` with an adapter."""

    bias_rule = DenseRule()

    def products(self, layer: Any) -> list[Product]:
        """Returns the products with A and with B."""
        a, b = layer.lora_kernel_a, layer.lora_kernel_b

        def to_b(inputs: Any, dz: Any) -> tuple:
            inputs = in_full_precision(inputs)
            return ops.matmul(inputs, _scaled(layer, a)), dz

        rule = DenseRule()
        return [
            Product(rule, _factor(a), a, functools.partial(_before, layer, b)),
            Product(rule, _factor(b), b, to_b),
        ]


@register_rule(
    keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D, lora=True
)
class LowRankConvRule(LowRankRule):
    """Rule for a convolution with an adapter.

    A is a convolution with as many filters as the rank, and B multiplies its
    outputs.
    """

    bias_rule = ConvRule()

    def weights(self, layer: Any) -> list:
        """Returns A and B; with several groups, no weights."""
        return super().weights(layer) if layer.groups == 1 else []

    def products(self, layer: Any) -> list[Product]:
        """Returns the products with A and with B."""
        a, b = layer.lora_kernel_a, layer.lora_kernel_b
        options = {
            "strides": layer.strides,
            "padding": layer.padding,
            "dilation_rate": layer.dilation_rate,
            "data_format": layer.data_format,
        }

        def last(tensor: Any) -> Any:
            return channels_last(tensor, layer.data_format)

        def to_a(inputs: Any, dz: Any) -> tuple:
            _, dz = _before(layer, b, inputs, last(dz))
            if layer.data_format == "channels_first":
                dz = ops.moveaxis(dz, -1, 1)
            return inputs, dz

        def to_b(inputs: Any, dz: Any) -> tuple:
            x, padding = in_full_precision(inputs), layer.padding
            if padding == "causal":
                reach = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
                time = 1 if layer.data_format == "channels_last" else 2
                x = ops.pad(
                    x, [(reach * (axis == time), 0) for axis in range(3)]
                )
                padding = "valid"
            hidden = ops.conv(
                x, _scaled(layer, a), **{**options, "padding": padding}
            )
            return last(hidden), last(dz)

        conv = _factor(
            a,
            kernel_size=layer.kernel_size,
            groups=1,
            rank=layer.rank,
            **options,
        )
        return [
            Product(ConvRule(), conv, a, to_a),
            Product(DenseRule(), _factor(b), b, to_b),
        ]


@register_rule(keras.layers.Embedding, lora=True)
class LowRankEmbeddingRule(LowRankRule):
    """Rule for an `Embedding` with an adapter, which looks up rows of A."""

    taps = "output"

    def products(self, layer: Any) -> list[Product]:
        """Returns the lookup in A and the product with B."""
        a, b = layer.lora_embeddings_a, layer.lora_embeddings_b
        lookup = types.SimpleNamespace(
            embeddings=a, input_dim=layer.input_dim, output_dim=b.shape[0]
        )

        def to_b(inputs: Any, dz: Any) -> tuple:
            ids = ops.cast(inputs, "int32")
            return ops.take(_scaled(layer, a), ids, axis=0), dz

        return [
            Product(
                EmbeddingRule(), lookup, a, functools.partial(_before, layer, b)
            ),
            Product(DenseRule(), _factor(b), b, to_b),
        ]
