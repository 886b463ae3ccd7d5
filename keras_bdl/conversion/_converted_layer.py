"""Layers whose inner layers `convert` has replaced."""

import functools
import inspect

import keras

from keras_bdl import _keras
from keras_bdl.models._model import Model


@keras.saving.register_keras_serializable(package="keras_bdl")
class ConvertedLayer:
    """Saves a layer together with its replaced inner layers.

    A layer, a block or a model with its own `call` makes its inner layers
    itself, so its config contains no replacements. `convert` therefore changes
    the class of such a layer to a class derived from `ConvertedLayer` and from
    the class of the layer. The layer behaves as before, and its config also
    contains the replaced inner layers.
    """

    def __init_subclass__(cls, **kwargs):
        # Prevents a call of `__init_subclass__` of the other parent class.
        pass

    def get_config(self):
        """Returns the config of the layer and of its replaced inner layers."""
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
        """Returns `None`: `from_config` builds the layer."""

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Returns the layer that `get_config` described."""
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
        # Another process could not find the derived class by its name.
        _, state = super().__reduce__()
        return _keras.unpickler(keras.layers.Layer), state


def disassembled(layer):
    """Returns a new layer, and what `assemble` needs to make it a copy.

    Args:
        layer: A layer of any class.

    Returns:
        A new layer of the class before conversion, the config to build the
        layer with, and the indices of the inner layers that were replaced.
    """
    if isinstance(layer, ConvertedLayer):
        converted = layer._converted
        cls = type(layer).__bases__[1]  # see `_converted_class`
        made = cls.from_config(layer._origin()["config"])
        return made, converted["build_config"], converted["parts"]
    made = made_again(layer, layer.get_config())
    return made, layer.get_build_config(), []


def made_again(layer, config):
    """Returns a new layer from the config of a layer.

    The configs of some layers of KerasHub 0.32, such as
    `ViTPatchingAndEmbedding`, have entries that their constructors refuse. So
    have those of layers whose constructor takes no `**kwargs`.

    Args:
        layer: The layer.
        config: Its config.
    """
    try:
        return type(layer).from_config(config)
    except TypeError:
        refused = config.keys() - _accepted(type(layer))
        if not refused:
            raise
        made = type(layer).from_config(
            {name: x for name, x in config.items() if name not in refused}
        )
    vars(made)["_refused_entries"] = refused
    return made


def _accepted(cls):
    """Returns the names of arguments that reach a constructor."""
    names = set()
    for base in cls.__mro__:
        parameters = inspect.signature(base.__init__).parameters
        names |= parameters.keys()
        kinds = [p.kind for p in parameters.values()]
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return names


def assemble(layer, build_config, find_parts):
    """Replaces inner layers of a new layer.

    Args:
        layer: A new layer that nothing else uses yet.
        build_config: The config to build the layer with.
        find_parts: A function that takes the inner layers and returns a dict
            from an index to the layer that replaces the inner layer there.

    Returns:
        The given layer.
    """
    # If the class has its own `build`, this method may make the inner layers.
    # Otherwise, the first call builds inner layers that already exist.
    builds_itself = type(layer).build not in (
        keras.layers.Layer.build,
        keras.Model.build,
    )
    origin = keras.saving.serialize_keras_object(layer)
    for not_of_config in ("build_config", "compile_config"):
        origin.pop(not_of_config, None)
    for name in vars(layer).pop("_refused_entries", ()):
        del origin["config"][name]
    if builds_itself and not layer.built:
        layer.build_from_config(build_config)
    parts = find_parts(_keras.tracked_layers(layer))
    if parts:
        _exchange(layer, parts)
        _become_converted(layer, origin, build_config, parts)
    if isinstance(layer, keras.Model) and not layer.built:
        layer.build_from_config(build_config)
        layer.built = True  # as Keras does if a call builds the model
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
            "An inner layer can be replaced only if it is an attribute, or "
            "in a list, tuple or dictionary that is an attribute. Store the "
            f"inner layers in this way. Received: {type(layer).__name__} "
            f"{layer.name!r}, which keeps "
            f"{[by_id[x].name for x in by_id if x not in found]} elsewhere"
        )


def _exchanged(value, by_id, found):
    """Returns the value of an attribute, with its layers replaced."""
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
    # If `call` has no argument `training`, the steps of Keras do not pass
    # `training=True`, and the model would train as in prediction.
    _keras.pass_training(layer)
    # Through `vars`, because `setattr` of Keras would search the dictionary for
    # layers.
    vars(layer)["_converted"] = {
        "origin": origin,
        "build_config": build_config,
        "parts": sorted(parts),
    }


@functools.cache
def _converted_class(cls):
    bases = (ConvertedLayer, cls)
    if issubclass(cls, keras.Model) and not issubclass(cls, Model):
        # Adds the methods of `keras_bdl.Model`.
        bases += (Model,)
    attributes = {
        name: getattr(cls, name)
        for name in ("__doc__", "__module__", "__qualname__")
    }
    converted = type(cls.__name__, bases, attributes)
    # Keras saves the derived class under the name of `ConvertedLayer`.

    package, _, name = keras.saving.get_registered_name(
        ConvertedLayer
    ).rpartition(">")
    register = keras.saving.register_keras_serializable(package, name)
    register(converted)
    register(ConvertedLayer)
    return converted
