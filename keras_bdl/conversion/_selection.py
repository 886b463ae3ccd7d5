"""The layers of a model that a conversion selects."""

import collections

import keras

from keras_bdl import _keras
from keras_bdl._arguments import did_you_mean
from keras_bdl.conversion._adapter import converts_adapter
from keras_bdl.conversion._adapter import frozen_layers
from keras_bdl.conversion._adapter import has_adapter
from keras_bdl.conversion._replacement_table import DETERMINISTIC
from keras_bdl.conversion._replacement_table import RULES
from keras_bdl.curvature._capture import SEALED
from keras_bdl.layers._adapted_layer import AdaptedLayer
from keras_bdl.models._model import functional_class

# The selector of layers with an adapter.
ADAPTERS = "lora"


class Selection:
    """Decides which Bayesian layer each layer of a model becomes.

    Args:
        to: The argument of `keras_bdl.convert`: a kind for all layers, or a
            dictionary from selectors to kinds.
        strict: Whether to refuse layers with weights that no rule converts.

    Attributes:
        kinds: All kinds in `to`.
        uncovered: The selected layers that no rule converts, after `plan`.
    """

    def __init__(self, to, *, strict: bool):
        self._strict = strict
        self.uncovered: list[keras.Layer] = []
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

    def plan(self, model):
        """Returns the kind of each layer to convert, by `id`.

        Raises an error if a selector converts no layer, or in strict mode if it
        selects a layer with weights that no rule converts.

        Args:
            model: A built model.
        """
        containers = _containers(model)
        closed = _without_config(model)
        frozen = frozen_layers(model)
        plan, uncovered, used = {}, [], set()
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

    def _rule_of(self, layer, containers):
        """Returns the first selector that matches a layer, and its kind."""
        for selector, kind in self._rules:
            if any(_matches(selector, x) for x in (layer, *containers)):
                return selector, kind
        return None, None

    def _refusal(self):
        layers = self.uncovered
        names = dict.fromkeys(_class_as_typed(layer) for layer in layers)
        left_out = "".join(f"{name}: None, " for name in names)
        return (
            "`to` must not select layers with weights that no rule converts. "
            "Leave them out with selectors that come first: "
            f'`to={{{left_out}keras.layers.Layer: "{min(self.kinds)}"}}`. '
            f"Received: {_named(layers)}"
        )


# `convert` clones these by their graph.
_CLONED = (keras.Sequential, functional_class())


def _without_config(model):
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


def _is_converted(kind, layer):
    if has_adapter(layer):
        return converts_adapter(kind, layer)
    return type(layer) in RULES[kind]


def _check_not_quantised(kind, layer):
    mode = getattr(layer, "quantization_mode", None)
    if mode is not None and kind != "mc_dropout":
        raise ValueError(
            "`model` is quantised, and distributions need weights that are "
            "not. Convert the model before you call `quantize`, or leave the "
            f"layer out with `to={{{layer.name!r}: None, ...}}`. "
            f"Received: layer={layer.name!r} with quantization_mode={mode!r}"
        )


def _check_kind(kind, may_be_none):
    if kind is None and may_be_none:
        return
    if not (isinstance(kind, str) and kind in RULES):
        raise ValueError(
            f"`to` must be one of {list(RULES)}, or a dictionary from "
            "selectors to these words, or to `None` for layers that stay "
            f"unchanged. {did_you_mean(kind, RULES)}Received: {kind!r}"
        )


def _check_selector(selector):
    if not (isinstance(selector, str) or callable(selector)):
        raise ValueError(
            "A selector in `to` must be the class or the name of layers, a "
            "layer, or a function that returns whether it selects a layer. "
            f"Received: {selector!r}"
        )


def _check_built(layer):
    if not layer.built:
        raise ValueError(
            "`to` must select built layers. A model builds a layer when it "
            "calls the layer. Leave layers without a call out with `None`. "
            f"Received: {_named([layer])}, which is not built"
        )


def _useless(selector, model):
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


def _containers(model):
    """Returns a dict from the `id` of a layer to the layers that contain it."""
    containers = collections.defaultdict(list)
    for container in _keras.inner_layers(model):
        for layer in _keras.inner_layers(container):
            containers[id(layer)].append(container)
    return containers


def _matches(selector, layer):
    if isinstance(selector, str):
        adapted = has_adapter(layer) or isinstance(layer, AdaptedLayer)
        return (selector == ADAPTERS and adapted) or layer.name == selector
    if isinstance(selector, type):
        return isinstance(layer, selector)
    if isinstance(selector, keras.layers.Layer):
        return layer is selector
    return bool(selector(layer))


def _has_weights_of_its_own(layer):
    if isinstance(layer, DETERMINISTIC):
        return False
    if isinstance(layer, SEALED):
        return bool(layer.weights)
    return bool(own_weights(layer))


def own_weights(layer):
    """Returns the weights of a layer without the weights of inner layers."""
    inner = _keras.inner_layers(layer)
    others = {id(w) for x in inner for w in x.weights}
    return [w for w in layer.weights if id(w) not in others]


def _class_as_typed(layer):
    """Returns the code that names the class of a layer."""
    name = type(layer).__name__
    is_of_keras = getattr(keras.layers, name, None) is type(layer)
    return f"keras.layers.{name}" if is_of_keras else name


def summary(kinds, layers, uncovered):
    """Returns a text that says what a conversion does.

    Args:
        kinds: The result of `Selection.plan`.
        layers: All layers of the model.
        uncovered: `Selection.uncovered`.
    """
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


def _named(layers):
    """Returns the names of layers, sorted by class."""
    names = collections.defaultdict(dict)
    for layer in layers:
        names[type(layer).__name__][layer.name] = None
    return "; ".join(f"{cls}: {', '.join(of)}" for cls, of in names.items())
