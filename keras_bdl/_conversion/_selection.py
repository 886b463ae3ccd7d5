"""Which Bayesian layer each layer of a model becomes."""

import collections
from collections.abc import Iterable
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl import layers
from keras_bdl._arguments import did_you_mean
from keras_bdl._conversion._adapter import AdaptedLayer
from keras_bdl._conversion._adapter import converts_adapter
from keras_bdl._conversion._adapter import frozen_layers
from keras_bdl._conversion._adapter import has_adapter
from keras_bdl._models._model import functional_class
from keras_bdl.curvature._capture import SEALED
from keras_bdl.layers._options import VariationalOptions
from keras_bdl.likelihoods import LearnedStddev


def _variational(prefix: str) -> dict[type, type]:
    """Returns the layers of one kind by the class of Keras they derive from."""
    names = [name for name in layers.__all__ if name.startswith(prefix)]
    classes = [getattr(layers, name) for name in names]
    return {cls.__bases__[-1]: cls for cls in classes}


# For each kind, a dict from the class of a layer to the class that replaces it.
# Subclasses have no rule, because a subclass may compute something else.
RULES: dict[str, dict[type, type]] = {
    "mean_field": _variational("MeanField"),
    "radial": _variational("Radial"),
}
RULES["mc_dropout"] = dict.fromkeys(
    [
        *RULES["mean_field"].keys() - {keras.layers.Embedding},
        keras.layers.Conv1DTranspose,
        keras.layers.Conv3DTranspose,
        keras.layers.DepthwiseConv1D,
        keras.layers.SeparableConv1D,
        keras.layers.SeparableConv2D,
        layers.WeightNormConv2D,
        layers.WeightNormDense,
    ],
    layers.MCDropout,
)

# The arguments of each kind that the replaced layer does not have.
OPTIONS = {
    "mean_field": {*VariationalOptions.__annotations__, "truncation"},
    "radial": {*VariationalOptions.__annotations__},
    "mc_dropout": {"rate", "seed"},
}

# The weights of these layers get no distribution: scales and offsets per
# feature, statistics, and the noise of the data.
DETERMINISTIC = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.Normalization,
    keras.layers.PReLU,
    keras.layers.RMSNormalization,
    LearnedStddev,
)

# The selector of layers with an adapter.
ADAPTERS = "lora"


class Selection:
    """The arguments `to` and `strict` of `keras_bdl.convert`, checked.

    `kinds` are those in `to`. After `plan`, `uncovered` are the selected layers
    that no rule converts.
    """

    def __init__(self, to: str | dict, *, strict: bool):
        self._strict = strict
        self.uncovered: list[keras.layers.Layer] = []
        rules = to if isinstance(to, dict) else {keras.layers.Layer: to}
        for selector, kind in rules.items():
            _check_kind(kind, may_be_none=rules is to)
            _check_selector(selector)
        self._rules = list(rules.items())
        self.kinds = {kind for kind in rules.values() if kind is not None}
        if not self.kinds:
            raise ValueError(
                "`to` must convert at least one layer. Give a selector a kind "
                f"other than `None`. Received: to={to!r}"
            )

    def plan(self, model: keras.Model) -> dict[int, str]:
        """Returns the kind of each layer to convert, by `id`.

        Raises an error if a selector converts no layer, or in strict mode if it
        selects a layer with weights that no rule converts.
        """
        containers = _containers(model)
        closed = _without_config(model)
        frozen = frozen_layers(model)
        plan: dict[int, str] = {}
        uncovered: list[keras.layers.Layer] = []
        used: set = set()
        for layer in _keras.inner_layers(model):
            if id(layer) in frozen:
                continue
            selector, kind = self._rule_of(layer, containers[id(layer)])
            sealed = [x for x in containers[id(layer)] if isinstance(x, SEALED)]
            if kind is None:
                used.add(selector)
            elif sealed:
                # The outermost sealed layer is enough for the error message: a
                # selector for it also selects the layers inside.
                uncovered += sealed[:1] if layer.weights else []
            elif blocks := [x for x in containers[id(layer)] if x in closed]:
                converts = type(layer) in RULES[kind]
                if converts or _has_weights_of_its_own(layer):
                    uncovered.append(blocks[0])
            elif _is_converted(kind, layer):
                _check_built(layer)
                _check_not_quantised(kind, layer)
                plan[id(layer)] = kind
                used.add(selector)
            elif _has_weights_of_its_own(layer):
                uncovered.append(layer)
        self.uncovered = list({id(x): x for x in uncovered}.values())
        if uncovered and (self._strict or not plan):
            raise ValueError(self._refusal())
        for selector, _ in self._rules:
            if selector not in used:
                raise ValueError(_useless(selector, model))
        return plan

    def _rule_of(
        self, layer: keras.layers.Layer, containers: list
    ) -> tuple[Any, str | None]:
        """Returns the first selector that matches a layer, and its kind."""
        for selector, kind in self._rules:
            if any(_matches(selector, x) for x in (layer, *containers)):
                return selector, kind
        return None, None

    def _refusal(self) -> str:
        names = dict.fromkeys(_class_as_typed(x) for x in self.uncovered)
        left_out = "".join(f"{name}: None, " for name in names)
        return (
            "`to` must not select layers with weights that no rule converts. "
            "Leave them out with selectors that come first: "
            f'`to={{{left_out}keras.layers.Layer: "{min(self.kinds)}"}}`. '
            f"Received: {_named(self.uncovered)}"
        )


# `convert` clones these by their graph.
_CLONED = (keras.Sequential, functional_class())


def _without_config(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the blocks whose `get_config` fails: they cannot be copied."""
    found = []
    for layer in _keras.inner_layers(model):
        if isinstance(layer, _CLONED) or not _keras.inner_layers(layer):
            continue
        try:
            layer.get_config()
        except NotImplementedError:
            found.append(layer)
    return found


def _is_converted(kind: str, layer: keras.layers.Layer) -> bool:
    if has_adapter(layer) and kind == "mc_dropout":
        return False
    if type(layer) not in RULES[kind]:
        return False
    return not has_adapter(layer) or converts_adapter(layer)


def _check_not_quantised(kind: str, layer: keras.layers.Layer) -> None:
    mode = getattr(layer, "quantization_mode", None)
    if mode is not None and kind != "mc_dropout":
        raise ValueError(
            "`model` is quantised, and distributions need weights that are "
            "not. Convert the model before you call `quantize`, or leave the "
            f"layer out with `to={{{layer.name!r}: None, ...}}`. "
            f"Received: layer={layer.name!r} with quantization_mode={mode!r}"
        )


def _check_kind(kind: Any, may_be_none: bool) -> None:
    if kind is None and may_be_none:
        return
    if not (isinstance(kind, str) and kind in RULES):
        raise ValueError(
            f"`to` must be one of {list(RULES)}, or a dictionary from "
            "selectors to these words, or to `None` for layers that stay "
            f"unchanged. {did_you_mean(kind, RULES)}Received: {kind!r}"
        )


def _check_selector(selector: Any) -> None:
    if not (isinstance(selector, str) or callable(selector)):
        raise ValueError(
            "A selector in `to` must be the class or the name of layers, a "
            "layer, or a function that returns whether it selects a layer. "
            f"Received: {selector!r}"
        )


def _check_built(layer: keras.layers.Layer) -> None:
    if not layer.built:
        raise ValueError(
            "`to` must select built layers. A model builds a layer when it "
            "calls the layer. Leave layers without a call out with `None`. "
            f"Received: {_named([layer])}, which is not built"
        )


def _useless(selector: Any, model: keras.Model) -> str:
    there_are = [
        layer
        for layer in _keras.inner_layers(model)
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    return (
        "Each selector in `to` must match at least one layer that earlier "
        "selectors did not match and, unless it stands for `None`, that a rule "
        f"converts. The model has {_named(there_are)}. Received: "
        f"{getattr(selector, '__name__', repr(selector))}, which matches none"
    )


def _containers(model: keras.Model) -> dict[int, list[keras.layers.Layer]]:
    """Returns a dict from the `id` of a layer to the layers that contain it."""
    containers: dict[int, list] = collections.defaultdict(list)
    for container in _keras.inner_layers(model):
        for layer in _keras.inner_layers(container):
            containers[id(layer)].append(container)
    return containers


def _matches(selector: Any, layer: keras.layers.Layer) -> bool:
    if isinstance(selector, str):
        adapted = has_adapter(layer) or isinstance(layer, AdaptedLayer)
        return (selector == ADAPTERS and adapted) or layer.name == selector
    if isinstance(selector, type):
        return isinstance(layer, selector)
    if isinstance(selector, keras.layers.Layer):
        return layer is selector
    return bool(selector(layer))


def _has_weights_of_its_own(layer: keras.layers.Layer) -> bool:
    if isinstance(layer, DETERMINISTIC):
        return False
    if isinstance(layer, SEALED):
        return bool(layer.weights)
    return bool(own_weights(layer))


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns the weights of a layer without the weights of inner layers."""
    inner = _keras.inner_layers(layer)
    others = {id(w) for x in inner for w in x.weights}
    return [w for w in layer.weights if id(w) not in others]


def _class_as_typed(layer: keras.layers.Layer) -> str:
    """Returns the code that names the class of a layer."""
    name = type(layer).__name__
    is_of_keras = getattr(keras.layers, name, None) is type(layer)
    return f"keras.layers.{name}" if is_of_keras else name


def summary(
    kinds: dict[int, str], layers: Iterable[keras.layers.Layer], uncovered: list
) -> str:
    """Returns a text that says what the plan `kinds` converts."""
    counts = collections.Counter(
        (kinds[id(layer)], type(layer).__name__)
        for layer in layers
        if id(layer) in kinds
    )
    lines = []
    for kind in dict.fromkeys(kinds.values()):
        of_kind = [f"{n} {cls}" for (k, cls), n in counts.items() if k == kind]
        lines.append(f"Converted to {kind}: {', '.join(of_kind)}")
    if uncovered:
        lines.append(f"Unchanged, no rule converts: {_named(uncovered)}")
    return "\n".join(lines)


def _named(layers: Iterable[keras.layers.Layer]) -> str:
    """Returns the names of layers, sorted by class."""
    names: dict[str, dict] = collections.defaultdict(dict)
    for layer in layers:
        names[type(layer).__name__][layer.name] = None
    return "; ".join(f"{cls}: {', '.join(of)}" for cls, of in names.items())
