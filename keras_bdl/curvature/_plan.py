"""Plan of a model: the rule of each layer and the owner of each weight."""

import math
import warnings
import weakref
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl._arguments import check_choice
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import own_variables
from keras_bdl.curvature._rule import rule_of
from keras_bdl.curvature._rule import trained_variables
from keras_bdl.curvature._rules._whole_layer import WholeLayerRule

# The layers inside of these layers get no rules of their own: a recurrent
# layer, for example, calls its cell many times in a loop.
SEALED = (
    keras.layers.Bidirectional,
    keras.layers.RNN,
    keras.layers.StackedRNNCells,
    keras.layers.Wrapper,
)

# With `fallback="auto"`, a layer with more weights needs a rule: the gradients
# of all examples are in memory at once.
SMALL = 2**20

# The layers that a warning has named.
_TOLD: weakref.WeakSet = weakref.WeakSet()


class Plan:
    """A rule for each layer of a model that has trainable weights.

    `fallback=True` differentiates layers without a rule separately for each
    example, with their inner layers. `"auto"` does so if a layer has at most
    `SMALL` weights of its own; if it has more with those of its inner layers,
    these need rules of their own. `False` raises an error. Layers without one
    of `variables`, by default all trainable ones, need no rule. A kernel with a
    side longer than `max_factor_size` gets no Kronecker factors.

    Attributes:
        variables: The variables, in the order of the model.
        rules: Pairs of layers and rules.
        owners: The layer of each variable, by `id` of the variable.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        fallback: bool | str = "auto",
        variables: list | None = None,
        max_factor_size: int | None = None,
    ):
        self.max_factor_size = max_factor_size
        self.variables = model.trainable_variables
        if variables is not None:
            self.variables = list(variables)
        self.rules: list[tuple[keras.Layer, Rule]] = []
        self.owners: dict[int, keras.Layer] = {}
        self._fallback = check_fallback(fallback)
        self._without_rule: list[keras.Layer] = []
        self._wanted = {id(v) for v in self.variables}
        inside: set[int] = set()
        for layer in _keras.all_layers(model):
            if id(layer) in inside:
                continue
            sealed = isinstance(layer, SEALED)
            own = trained_variables(layer) if sealed else own_variables(layer)
            if not any(map(self._trains, own)):
                continue
            _check_supported(layer, model)
            rule = None if sealed else rule_of(layer)
            if rule is None:
                rule = self._whole_layer(layer, own)
                if rule.inner:
                    inner = _keras.inner_layers(layer)
                    inside.update(id(part) for part in inner)
            self.rules.append((layer, rule))
            for variable in rule.weights(layer):
                self._own(variable, layer)
        lost = [v.path for v in self.variables if id(v) not in self.owners]
        if lost:
            raise ValueError(
                "Per-example curvature needs every trainable variable to "
                "belong to a layer of the model. Create variables in layers. "
                f"Received: {', '.join(lost)}, which belong to no layer"
            )
        self._warn_of_layers_without_rule()

    def matrices(self, layer: keras.Layer, rule: Rule) -> list[WeightMatrix]:
        """Returns the matrices of a layer with the variables of the plan."""
        found = [m for m in rule.matrices(layer) if self._trains(m.kernel)]
        for matrix in found:
            if matrix.bias is not None and not self._trains(matrix.bias):
                matrix.bias = None
        limit = self.max_factor_size or math.inf
        return [m for m in found if max(m.kernel_shape) <= limit]

    def _trains(self, variable: Any) -> bool:
        return id(variable) in self._wanted

    def _own(self, variable: Any, layer: keras.Layer) -> None:
        owner = self.owners.setdefault(id(variable), layer)
        if owner is not layer:
            raise ValueError(
                "Per-example curvature needs every trainable variable to "
                f"belong to one layer alone. Received: {variable.path}, in "
                f"{owner.name!r} and in {layer.name!r}"
            )

    def _whole_layer(self, layer: keras.Layer, own: list) -> WholeLayerRule:
        sealed = isinstance(layer, SEALED)
        if self._fallback is True:
            return WholeLayerRule(inner=True, any_rows=True)
        if self._fallback == "auto" and _size(own) <= SMALL:
            self._without_rule.append(layer)
            # Inner layers of a small block need no rules either: some get
            # inputs that all examples share, such as positions.
            whole = _size(trained_variables(layer)) <= SMALL
            return WholeLayerRule(inner=sealed or whole, any_rows=False)
        raise ValueError(
            "Per-example curvature has no rule for "
            f"`{type(layer).__name__}` with the weights "
            f"{', '.join(v.path for v in own)}. Register a rule with "
            "`keras_bdl.extend.register_rule`, pass `fallback=True` to "
            "differentiate this layer example by example, or freeze the layer. "
            f"Received: layer={layer.name!r} with {_size(own):,} weights, and "
            f"fallback={self._fallback!r}"
        )

    def _warn_of_layers_without_rule(self) -> None:
        new = [layer for layer in self._without_rule if layer not in _TOLD]
        _TOLD.update(new)
        if new:
            names = {f"`{type(layer).__name__}`" for layer in new}
            warnings.warn(
                "Per-example curvature has no rule for "
                f"{', '.join(sorted(names))}, and differentiates these small "
                "layers example by example. The result is the same. If "
                "training is too slow, freeze them, or register a rule with "
                "`keras_bdl.extend.register_rule`",
                stacklevel=2,
            )


def _check_supported(layer: keras.Layer, model: keras.Model) -> None:
    if getattr(layer, "quantization_mode", None) is not None:
        raise ValueError(
            "Per-example curvature needs layers that are not quantised. Freeze "
            "the layer, or train with `keras_bdl.IVON` or a sampler. Received: "
            f"layer={layer.name!r}, "
            f"quantization_mode={layer.quantization_mode!r}"
        )
    recurrent = isinstance(
        layer, (keras.layers.RNN, keras.layers.Bidirectional)
    )
    if recurrent and getattr(model, "jit_compile", False) is True:
        raise ValueError(
            "Per-example curvature of a recurrent layer cannot be compiled by "
            "XLA. Pass `jit_compile=False` to `compile`. "
            f"Received: layer={layer.name!r}, jit_compile=True"
        )


def check_fallback(fallback: bool | str) -> bool | str:
    """Returns the argument `fallback`, or raises an error."""
    return check_choice("fallback", fallback, (True, False, "auto"))


def _size(variables: list) -> int:
    return sum(math.prod(v.shape) for v in variables)
