"""Which rule is for which type of layer."""

import keras

_RULES = {}


def register_rule(*layer_classes):
    """Registers a `Rule` for layers, as a decorator of its class.

    The rule serves these layers and those derived from them, as long as they
    inherit `call`. Of several rules, that of the nearest class counts, and
    of two for one class the later.

    Args:
        *layer_classes: Classes of layers.

    Returns:
        The decorator.
    """

    def register(rule_class):
        for layer_class in layer_classes:
            _RULES[layer_class] = rule_class()
        return rule_class

    return register


def rule_of(layer):
    """Returns the rule of a built layer, or `None`.

    Args:
        layer: A Keras layer.
    """
    cls = next((c for c in type(layer).__mro__ if c in _RULES), None)
    if cls is None or type(layer).call is not cls.call:
        return None
    if getattr(layer, "quantization_mode", None) is not None:
        return None
    rule = _RULES[cls]
    known = {id(v) for v in rule.weights(layer)}
    # Low-rank adapters and subclasses may train others.
    if any(id(v) not in known for v in own_variables(layer)):
        return None
    return rule


def own_variables(layer):
    """Returns the trainable variables of a layer, not of those inside.

    Args:
        layer: A Keras layer.
    """
    inner = {
        id(v)
        for part in layer._flatten_layers(include_self=False)
        for v in part.trainable_variables
    }
    return [
        v
        for v in layer.trainable_variables
        if id(v) not in inner and isinstance(v, keras.Variable)
    ]
