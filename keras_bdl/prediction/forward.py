"""The traced forward pass of a prediction."""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bdl.posteriors.dropout_switch import dropout_on
from keras_bdl.prediction.averages import ClassificationAverage
from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.outputs import OutputCheck
from keras_bdl.prediction.outputs import per_output
from keras_bdl.prediction.stateless_call import stateless_call
from keras_bdl.prediction.traced import ModelCache
from keras_bdl.prediction.traced import traced

_CACHE = ModelCache()
_NOTHING = contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class ForwardOptions:
    """The arguments of `keras_bdl.predict` that change the trace.

    Args:
        task: Argument of `keras_bdl.predict`.
        from_logits: Argument of `keras_bdl.predict`.
        moments: Argument of `keras_bdl.predict`.
        dropout: Whether dropout is on. Defaults to `False`.
    """

    task: Any
    from_logits: Any
    moments: Callable | None
    dropout: bool = False


@dataclasses.dataclass(frozen=True)
class Output:
    """One output of the model.

    Args:
        name: Name of the output in error messages.
        likelihood: The `Likelihood` of the output.
        dtype: Dtype in which the model returns the output.
    """

    name: str
    likelihood: Likelihood
    dtype: str


class Forward:
    """Computes, for each output, the statistics that a prediction averages.

    The forward pass is `model(x, training=False)`. The weights are arguments,
    so one trace serves every posterior sample and the model does not change.
    `forward_of` keeps one object for each pair of model and options.

    Args:
        model: A Keras model.
        options: The `ForwardOptions`.

    Attributes:
        outputs: A flat list of `Output`, empty before the first call.
        structure: The structure of the model's outputs, with `None` for each
            output.
    """

    def __init__(self, model: keras.Model, options: ForwardOptions):
        self.options = options
        self.outputs: list[Output] = []
        self.structure: Any = None
        self._model = weakref.ref(model)
        self._function = traced(model, self._call, sharded=True)

    def __call__(self, inputs: Any, values: list) -> list[dict[str, Any]]:
        """Returns a flat list: one dictionary of tensors for each output.

        Args:
            inputs: A batch of nested arrays.
            values: A tensor for each of `model.variables`.
        """
        return self._function(inputs, values)

    def _call(self, inputs, values):
        model = self._model()
        inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs)
        state = zip(model.variables, values, strict=True)
        with dropout_on(model) if self.options.dropout else _NOTHING:
            outputs = stateless_call(
                model, inputs, keras.StatelessScope(state), training=False
            )
        if self.options.moments is not None:
            return self._moments(outputs)
        flat = keras.tree.flatten(outputs)
        self.outputs = self._describe(model, outputs)
        self.structure = keras.tree.map_structure(lambda _: None, outputs)
        return [
            _statistics(tensor, output.likelihood)
            for tensor, output in zip(flat, self.outputs, strict=True)
        ]

    def _moments(self, outputs):
        outputs = keras.tree.map_structure(_at_least_float32, outputs)
        pair = self.options.moments(outputs)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                "`moments` must return a pair (mean, variance). "
                f"Received: moments(outputs)={pair}"
            )
        mean, variance = (_at_least_float32(value) for value in pair)
        variance = ops.broadcast_to(variance, ops.shape(mean))
        self.outputs = [Output("The mean", Likelihood("regression"), "float32")]
        self.structure = None
        return [{"mean": mean, "variance": variance}]

    def _describe(self, model, outputs):
        names = getattr(model, "output_names", None)
        arguments = [
            per_output(argument, value, outputs, names=names)
            for argument, value in (
                ("task", self.options.task),
                ("from_logits", self.options.from_logits),
                ("loss", model.loss),
            )
        ]
        paths = keras.tree.flatten_with_path(outputs)
        return [
            _describe(path, tensor, Likelihood.resolve(*values))
            for (path, tensor), *values in zip(paths, *arguments, strict=True)
        ]


def forward_of(model: keras.Model, options: ForwardOptions) -> Forward:
    """Returns the `Forward` of a model, new or from an earlier call.

    Args:
        model: A Keras model.
        options: The `ForwardOptions`.
    """
    return _CACHE.get(model, options, lambda: Forward(model, options))


def _describe(path, tensor, likelihood):
    one_entry = len(tensor.shape) == 1 or tensor.shape[-1] == 1
    if likelihood.task == "classification" and one_entry:
        likelihood = dataclasses.replace(likelihood, task="binary")
    place = "".join(f"[{key!r}]" for key in path)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    return Output(f"The model's output{place}", likelihood, dtype)


def _statistics(output, likelihood):
    output = _at_least_float32(output)
    if likelihood.task == "regression":
        return {"mean": output}
    if len(output.shape) == 1:
        output = ops.expand_dims(output, axis=-1)
    return {
        **ClassificationAverage.statistics(output, likelihood),
        **OutputCheck.measure(output, likelihood),
    }


def _at_least_float32(output):
    output = ops.convert_to_tensor(output)
    if keras.backend.standardize_dtype(output.dtype) == "float64":
        return output
    return ops.cast(output, "float32")
