"""Copies of a model in which some layers are replaced."""

import collections
import functools
import inspect
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl._conversion._selection import own_weights
from keras_bdl._models._model import Model
from keras_bdl._models._model import Sequential
from keras_bdl._models._model import functional_class

if TYPE_CHECKING:
    from keras.layers import Layer as _KerasLayer
else:
    _KerasLayer = object  # derived classes bring the layer


class ModelCopy:
    """A copy of a model with new layers, whose weights have no values yet.

    A shared layer is also shared in the copy. `replacements` has a function for
    the `id` of a layer, which returns the new layer, not built. `pairs` are the
    layers of the model, each with its copy.
    """

    def __init__(
        self, model: keras.Model, replacements: Mapping[int, Callable]
    ):
        self._replacements = replacements
        self._own = {*replacements, *_used_in_several_places(model)}
        self._copies: dict[int, Any] = {}
        self._made_by_others: list[tuple] = []
        self.model = self._top(model)
        for layer, copy in self._made_by_others:
            self._copies[id(layer)] = copy
            self._pair_inner(layer, copy)
        self.pairs = list(self._find_pairs(model))
        for layer, copy in self.pairs:
            # `trainable` of a container also sets its inner layers. Containers
            # come first in `pairs`, so inner layers get their own values.
            if copy.trainable != layer.trainable:
                copy.trainable = layer.trainable

    def _top(self, model: keras.Model) -> keras.Model:
        if isinstance(model, keras.Sequential):
            copy = self._sequential(model, Sequential)
        elif isinstance(model, functional_class()):
            plain = self._functional(model)
            copy = Model(plain.input, plain.output, name=model.name)
            copy.dtype_policy = model.dtype_policy
        else:
            copy = self._composite(model)
        self._copies[id(model)] = copy
        return copy

    def _copy(self, layer: Any) -> Any:
        if id(layer) not in self._copies:
            self._copies[id(layer)] = self._new(layer)
        return self._copies[id(layer)]

    def _new(self, layer: Any) -> Any:
        if id(layer) in self._replacements:
            copy = self._replacements[id(layer)](layer)
            # A replaced layer may have an inner layer, such as an activation.
            self._pair_inner(layer, getattr(copy, "layer", copy))
            return copy
        if isinstance(layer, keras.Sequential):
            return self._sequential(layer, keras.Sequential)
        if isinstance(layer, functional_class()):
            return self._functional(layer)
        if not isinstance(layer, keras.Layer):
            # An operation, such as one of `keras.ops`.
            return type(layer).from_config(layer.get_config())
        if self._holds_own(layer):
            return self._composite(layer)
        copy = _from_config(layer)
        self._made_by_others.append((layer, copy))
        return copy

    def _sequential(self, model: keras.Model, cls: type) -> keras.Model:
        _check_call(model, keras.Sequential)
        inputs = _input_layers(model).values()
        layers = [*inputs, *map(self._copy, model.layers)]
        copy = cls(layers, name=model.name)
        if not copy.built:
            copy.build_from_config(model.get_build_config())
        copy.dtype_policy = model.dtype_policy
        return copy

    def _functional(self, model: keras.Model) -> keras.Model:
        _check_call(model, functional_class())
        copies = _input_layers(model)
        inputs = keras.tree.map_structure(
            lambda tensor: copies[id(tensor)].output, model.input
        )
        # Keras would also compile the clone if the model is compiled.
        plain = functional_class()(model.input, model.output, name=model.name)
        copy = keras.models.clone_model(plain, inputs, self._copy)
        # With `"mixed_float16"`, this policy makes Keras scale the loss.
        copy.dtype_policy = model.dtype_policy
        return copy

    def _composite(self, layer: keras.Layer) -> keras.Layer:
        """Copies a layer that calls inner layers in its own way."""
        copy, build_config, exchanged = _disassembled(layer)

        def find_parts(made: Sequence) -> dict:
            _check_alike(layer, _keras.tracked_layers(layer), made, exchanged)
            parts = {}
            for i, inner in enumerate(_keras.tracked_layers(layer)):
                if i not in exchanged and not self._holds_own(inner):
                    self._made_by_others.append((inner, made[i]))
                    continue
                parts[i] = self._copy(inner)
                if made[i].built and not parts[i].built:
                    parts[i].build_from_config(inner.get_build_config())
            return parts

        return _assemble(copy, build_config, find_parts)

    def _holds_own(self, layer: keras.Layer) -> bool:
        return any(id(inner) in self._own for inner in _keras.all_layers(layer))

    def _pair_inner(self, layer: keras.Layer, copy: keras.Layer) -> None:
        inner = _keras.inner_layers(layer)
        inner_copies = _keras.inner_layers(copy)
        _check_alike(layer, inner, inner_copies)
        for one, its_copy in zip(inner, inner_copies, strict=True):
            self._copies[id(one)] = its_copy

    def _find_pairs(self, model: keras.Model) -> Iterator[tuple]:
        for layer in _keras.all_layers(model):
            if id(layer) in self._copies:
                yield layer, self._copies[id(layer)]
            elif own_weights(layer):
                raise ValueError(
                    "`model` must use all its layers, because a copy has only "
                    "the layers in use. Remove the unused layer. Received: "
                    f"layer={layer.name!r}, which is not part of the graph"
                )


def copy_values(layer: keras.Layer, copy: keras.Layer) -> None:
    """Copies the state of a layer to another layer of its class."""
    # Some layers keep more state than weights. As in saving and loading, the
    # store and the assets hold the whole state.
    store: dict[str, Any] = {}
    layer.save_own_variables(store)
    copy.load_own_variables(store)
    if getattr(layer, "lora_enabled", False):
        if not copy.lora_enabled:
            # A block that made the copy knows nothing of the adapter.
            copy.enable_lora(layer.lora_rank, lora_alpha=layer.lora_alpha)
            copy.trainable = layer.trainable
        # Keras stores the sum of the kernel and the adapter.
        for variable, value in zip(copy.weights, layer.weights, strict=True):
            variable.assign(value)
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory() as directory:
            layer.save_assets(directory)
            copy.load_assets(directory)


def config_of(layer: keras.Layer) -> dict[str, Any]:
    """Returns the config of a layer, with `lambda` functions as functions.

    Keras refuses to make a layer from the serialised form of a `lambda`.
    """
    config = layer.get_config()
    for name in config:
        value = getattr(layer, name, None)
        if inspect.isfunction(value) and value.__name__ == "<lambda>":
            config[name] = value
    return config


def _from_config(layer: keras.Layer) -> keras.Layer:
    config = config_of(layer)
    if isinstance(layer, keras.layers.Lambda):
        return type(layer)(**{**config, "function": layer.function})
    return _made_again(layer, config)


def _input_layers(model: keras.Model) -> dict[int, keras.Layer]:
    """Returns a dict from the `id` of an input tensor to a new input layer."""
    return {
        id(layer.output): type(layer).from_config(layer.get_config())
        for layer in _keras.tracked_layers(model)
        if isinstance(layer, keras.layers.InputLayer)
    }


def _used_in_several_places(model: keras.Model) -> list[int]:
    places = collections.Counter(
        id(inner)
        for layer in _keras.all_layers(model)
        for inner in _keras.tracked_layers(layer)
    )
    return [layer for layer, count in places.items() if count > 1]


def _check_call(model: keras.Model, cls: Any) -> None:
    if type(model).call is not cls.call:
        raise ValueError(
            "A functional or sequential model with its own `call` cannot be "
            "converted, because the copy would lose this `call`. Derive the "
            "class from `keras.Model` and keep the layers as attributes. "
            f"Received: {type(model).__name__} {model.name!r}"
        )


def _check_alike(
    layer: keras.Layer,
    inner: Sequence,
    inner_copies: Sequence,
    exchanged: Sequence[int] = (),
) -> None:
    expected = [type(x).__name__ for x in inner]
    received = [type(x).__name__ for x in inner_copies]
    alike = len(expected) == len(received) and all(
        a == b or i in exchanged
        for i, (a, b) in enumerate(zip(expected, received, strict=True))
    )
    if not alike:
        raise ValueError(
            "`from_config(get_config())` of a layer or model must create all "
            "inner layers again. Correct these methods. Received: "
            f"{type(layer).__name__} {layer.name!r} with {expected}, and a "
            f"copy with {received}"
        )


@keras.saving.register_keras_serializable(package="keras_bdl")
class ConvertedLayer(_KerasLayer):
    """A layer that saves its replaced inner layers, too.

    A layer, a block or a model with its own `call` makes its inner layers
    itself, so its config contains no replacements. `convert` therefore changes
    the class of such a layer to a class derived from `ConvertedLayer` and from
    the class of the layer. The layer behaves as before, and its config also
    contains the replaced inner layers.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Prevents a call of `__init_subclass__` of the other parent class.
        pass

    def get_config(self) -> dict:
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

    def _origin(self) -> dict:
        origin = dict(self._converted["origin"])
        if "trainable" in origin["config"]:
            origin["config"] = {**origin["config"], "trainable": self.trainable}
        return origin

    def get_build_config(self) -> None:
        """Returns `None`: `from_config` builds the layer."""

    @classmethod
    def from_config(
        cls, config: dict, custom_objects: dict | None = None
    ) -> keras.Layer:
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
        return _assemble(layer, config["build_config"], lambda _: parts)

    def __reduce__(self) -> tuple:
        # Another process could not find the derived class by its name.
        _, state = super().__reduce__()
        return _keras.unpickler(keras.Layer), state


def _disassembled(layer: keras.Layer) -> tuple[keras.Layer, dict, list[int]]:
    """Returns a new layer, and what `_assemble` needs to make it a copy.

    The new layer has the class before conversion. The config to build the layer
    with, and the indices of the replaced inner layers follow.
    """
    if isinstance(layer, ConvertedLayer):
        converted = layer._converted
        cls: Any = type(layer).__bases__[1]  # see `_converted_class`
        made = cls.from_config(layer._origin()["config"])
        return made, converted["build_config"], converted["parts"]
    made = _made_again(layer, layer.get_config())
    return made, layer.get_build_config(), []


def _made_again(layer: keras.Layer, config: dict) -> keras.Layer:
    """Returns a new layer from the config of a layer.

    The configs of some layers of KerasHub 0.32, such as
    `ViTPatchingAndEmbedding`, have entries that their constructors refuse. So
    have those of layers whose constructor takes no `**kwargs`.
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


def _accepted(cls: Any) -> set[str]:
    """Returns the names of arguments that reach a constructor."""
    names: set[str] = set()
    for base in cls.__mro__:
        parameters = inspect.signature(base.__init__).parameters
        names |= parameters.keys()
        kinds = [p.kind for p in parameters.values()]
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return names


def _assemble(
    layer: keras.Layer,
    build_config: dict,
    find_parts: Callable[[Sequence], dict],
) -> keras.Layer:
    """Replaces inner layers of a new layer that nothing else uses yet.

    `find_parts` takes the inner layers and returns those that replace the inner
    layers at some indices.
    """
    # If the class has its own `build`, this method may make the inner layers.
    # Otherwise, the first call builds inner layers that already exist.
    builds_itself = type(layer).build not in (
        keras.Layer.build,
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


def _exchange(layer: keras.Layer, parts: dict[int, keras.Layer]) -> None:
    by_id = {}
    for index, part in parts.items():
        by_id[id(_keras.tracked_layers(layer)[index])] = part
        _keras.replace_tracked_layer(layer, index, part)
    found: set[int] = set()
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


def _exchanged(
    value: Any, by_id: dict[int, keras.Layer], found: set[int]
) -> Any:
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


def _become_converted(
    layer: keras.Layer,
    origin: dict,
    build_config: dict,
    parts: dict[int, keras.Layer],
) -> None:
    # The constructor of the class may be any, and has made the layer already.
    cls: Any = type(layer)
    layer.__class__ = _converted_class(cls)
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
def _converted_class(cls: Any) -> type:
    bases: tuple[type, ...] = (ConvertedLayer, cls)
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
