"""Layers of any class that hold other inner layers than their class makes."""

import functools

import keras

from keras_bdl import _keras
from keras_bdl.models.model import Model


@keras.saving.register_keras_serializable(package="keras_bdl")
class ConvertedLayer:
    """Saves a layer with the inner layers that were exchanged.

    The config of a layer, a block or a model with a `call` of its own makes
    the inner layers that its class says. A layer whose inner layers are others
    becomes an instance of a class made of this one and of its own: it is
    what it was, and is saved with a config of both.
    """

    def __init_subclass__(cls, **kwargs):
        # The parents of a class that is made here do not hear of it.
        pass

    def get_config(self):
        """Returns the config of the layer, and of the inner layers."""
        return {
            "origin": self._origin(),
            "build_config": self._converted["build_config"],
            "parts": {
                str(index): keras.saving.serialize_keras_object(
                    _keras.tracked_layers(self)[index]
                )
                for index in self._converted["parts"]
            },
        }

    def _origin(self):
        origin = dict(self._converted["origin"])
        if "trainable" in origin["config"]:
            origin["config"] = {
                **origin["config"],
                "trainable": self.trainable,
            }
        return origin

    def get_build_config(self):
        """Returns nothing: `from_config` builds what has to be."""

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Returns a layer as `get_config` described it."""
        layer = keras.saving.deserialize_keras_object(
            config["origin"], custom_objects
        )
        parts = {
            int(index): keras.saving.deserialize_keras_object(
                part, custom_objects
            )
            for index, part in config["parts"].items()
        }
        return assemble(layer, config["build_config"], lambda _: parts)

    def __reduce__(self):
        # A class that is made here has no name by which another process
        # could find it.
        _, state = super().__reduce__()
        return _keras.unpickler(keras.layers.Layer), state


def disassembled(layer):
    """Returns what `assemble` takes to make a copy of a layer.

    Args:
        layer: A layer of any class.

    Returns:
        A new layer as its class makes it, what it is to be built with, and
        the indices of the inner layers that are others.
    """
    if isinstance(layer, ConvertedLayer):
        converted = layer._converted
        cls = type(layer).__bases__[1]  # see `_converted_class`
        made = cls.from_config(layer._origin()["config"])
        return made, converted["build_config"], converted["parts"]
    made = type(layer).from_config(layer.get_config())
    return made, layer.get_build_config(), []


def assemble(layer, build_config, find_parts):
    """Exchanges inner layers of a layer that was just made by its class.

    Args:
        layer: A layer that nothing else knows yet.
        build_config: What it is to be built with.
        find_parts: A function that is given the inner layers and returns
            those to exchange, by index.

    Returns:
        The layer.
    """
    # A `build` of its own may make the inner layers. Without one, `call`
    # builds what it finds.
    builds_itself = type(layer).build not in (
        keras.layers.Layer.build,
        keras.Model.build,
    )
    origin = keras.saving.serialize_keras_object(layer)
    for not_of_config in ("build_config", "compile_config"):
        origin.pop(not_of_config, None)
    if builds_itself and not layer.built:
        layer.build_from_config(build_config)
    parts = find_parts(_keras.tracked_layers(layer))
    if parts:
        _exchange(layer, parts)
        _become_converted(layer, origin, build_config, parts)
    if isinstance(layer, keras.Model) and not layer.built:
        layer.build_from_config(build_config)
        layer.built = True  # as Keras does, after it has built by a call
    return layer


def _exchange(layer, parts):
    by_id = {}
    for index, part in parts.items():
        by_id[id(_keras.tracked_layers(layer)[index])] = part
        _keras.replace_tracked_layer(layer, index, part)
    found = set()
    for name, value in list(vars(layer).items()):
        if name in _keras.BOOKKEEPING:
            continue
        exchanged = _exchanged(value, by_id, found)
        if exchanged is not value:
            setattr(layer, name, exchanged)
    if len(found) < len(by_id):
        raise ValueError(
            "An inner layer can be exchanged where it is an attribute, or in "
            "a list, tuple or dictionary that is one. Received: "
            f"{type(layer).__name__} {layer.name!r}, which keeps "
            f"{[by_id[x].name for x in by_id if x not in found]} elsewhere"
        )


def _exchanged(value, by_id, found):
    """Returns the value of an attribute with other layers in it."""
    if id(value) in by_id:
        found.add(id(value))
        return by_id[id(value)]
    if isinstance(value, list):
        for i, item in enumerate(value):
            value[i] = _exchanged(item, by_id, found)
    elif isinstance(value, dict):
        for key, item in value.items():
            value[key] = _exchanged(item, by_id, found)
    elif isinstance(value, tuple):
        items = [_exchanged(item, by_id, found) for item in value]
        if any(a is not b for a, b in zip(items, value, strict=True)):
            return getattr(value, "_make", type(value))(items)
    return value


def _become_converted(layer, origin, build_config, parts):
    layer.__class__ = _converted_class(type(layer))
    # Keras trains a model whose `call` has no argument `training` as if it
    # were to predict. The layers inside are told in any case.
    _keras.pass_training(layer)
    # Past Keras, which would look for layers in it.
    vars(layer)["_converted"] = {
        "origin": origin,
        "build_config": build_config,
        "parts": sorted(parts),
    }


@functools.cache
def _converted_class(cls):
    bases = (ConvertedLayer, cls)
    if issubclass(cls, keras.Model) and not issubclass(cls, Model):
        # What the class would have been, had it been derived from ours.
        bases += (Model,)
    attributes = {
        name: getattr(cls, name)
        for name in ("__doc__", "__module__", "__qualname__")
    }
    converted = type(cls.__name__, bases, attributes)
    # Saved and loaded under the name of the one that has a name.
    package, _, name = keras.saving.get_registered_name(
        ConvertedLayer
    ).rpartition(">")
    register = keras.saving.register_keras_serializable(package, name)
    register(converted)
    register(ConvertedLayer)
    return converted
