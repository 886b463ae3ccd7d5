"""Copies of a model in which some layers are replaced."""

import collections
import inspect
import tempfile

import keras

from keras_bdl import _keras
from keras_bdl.conversion._converted_layer import assemble
from keras_bdl.conversion._converted_layer import disassembled
from keras_bdl.conversion._converted_layer import made_again
from keras_bdl.conversion._selection import own_weights
from keras_bdl.models._model import Model
from keras_bdl.models._model import Sequential
from keras_bdl.models._model import functional_class


class ModelCopy:
    """A copy of a model with new layers, whose weights have no values yet.

    A shared layer is also shared in the copy. The model does not change.

    Args:
        model: A built model.
        replacements: Dict from the `id` of a layer to a function. The function
            takes the layer and returns the new layer, which is not built.

    Attributes:
        model: The copy.
        pairs: Each layer of the model, with its copy.
    """

    def __init__(self, model, replacements):
        self._replacements = replacements
        self._own = {*replacements, *_used_in_several_places(model)}
        self._copies = {}
        self._made_by_others = []
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

    def _top(self, model):
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

    def _copy(self, layer):
        if id(layer) not in self._copies:
            self._copies[id(layer)] = self._new(layer)
        return self._copies[id(layer)]

    def _new(self, layer):
        if id(layer) in self._replacements:
            copy = self._replacements[id(layer)](layer)
            # A replaced layer may have an inner layer, such as an activation.
            self._pair_inner(layer, getattr(copy, "layer", copy))
            return copy
        if isinstance(layer, keras.Sequential):
            return self._sequential(layer, keras.Sequential)
        if isinstance(layer, functional_class()):
            return self._functional(layer)
        if not isinstance(layer, keras.layers.Layer):
            # An operation, such as one of `keras.ops`.
            return type(layer).from_config(layer.get_config())
        if self._holds_own(layer):
            return self._composite(layer)
        copy = _from_config(layer)
        self._made_by_others.append((layer, copy))
        return copy

    def _sequential(self, model, cls):
        _check_call(model, keras.Sequential)
        inputs = _input_layers(model).values()
        layers = [*inputs, *map(self._copy, model.layers)]
        copy = cls(layers, name=model.name)
        if not copy.built:
            copy.build_from_config(model.get_build_config())
        copy.dtype_policy = model.dtype_policy
        return copy

    def _functional(self, model):
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

    def _composite(self, layer):
        """Copies a layer that calls inner layers in its own way."""
        copy, build_config, exchanged = disassembled(layer)

        def find_parts(made):
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

        return assemble(copy, build_config, find_parts)

    def _holds_own(self, layer):
        return any(id(inner) in self._own for inner in _keras.all_layers(layer))

    def _pair_inner(self, layer, copy):
        inner = _keras.inner_layers(layer)
        inner_copies = _keras.inner_layers(copy)
        _check_alike(layer, inner, inner_copies)
        for one, its_copy in zip(inner, inner_copies, strict=True):
            self._copies[id(one)] = its_copy

    def _find_pairs(self, model):
        for layer in _keras.all_layers(model):
            if id(layer) in self._copies:
                yield layer, self._copies[id(layer)]
            elif own_weights(layer):
                raise ValueError(
                    "`model` must use all its layers, because a copy has only "
                    "the layers in use. Remove the unused layer. Received: "
                    f"layer={layer.name!r}, which is not part of the graph"
                )


def copy_values(layer, copy):
    """Copies the state of a layer to another layer of its class.

    Args:
        layer: The layer with the state.
        copy: The layer that receives the state.
    """
    # Some layers keep more state than weights. As in saving and loading, the
    # store and the assets hold the whole state.
    store = {}
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


def config_of(layer):
    """Returns the config of a layer, with `lambda` functions as functions.

    Keras refuses to make a layer from the serialised form of a `lambda`.

    Args:
        layer: A layer.
    """
    config = layer.get_config()
    for name in config:
        value = getattr(layer, name, None)
        if inspect.isfunction(value) and value.__name__ == "<lambda>":
            config[name] = value
    return config


def _from_config(layer):
    config = config_of(layer)
    if isinstance(layer, keras.layers.Lambda):
        return type(layer)(**{**config, "function": layer.function})
    return made_again(layer, config)


def _input_layers(model):
    """Returns a dict from the `id` of an input tensor to a new input layer."""
    return {
        id(layer.output): type(layer).from_config(layer.get_config())
        for layer in _keras.tracked_layers(model)
        if isinstance(layer, keras.layers.InputLayer)
    }


def _used_in_several_places(model):
    places = collections.Counter(
        id(inner)
        for layer in _keras.all_layers(model)
        for inner in _keras.tracked_layers(layer)
    )
    return [layer for layer, count in places.items() if count > 1]


def _check_call(model, cls):
    if type(model).call is not cls.call:
        raise ValueError(
            "A functional or sequential model with its own `call` cannot be "
            "converted, because the copy would lose this `call`. Derive the "
            "class from `keras.Model` and keep the layers as attributes. "
            f"Received: {type(model).__name__} {model.name!r}"
        )


def _check_alike(layer, inner, inner_copies, exchanged=()):
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
