"""The one traced forward pass of a prediction."""

import contextlib
import dataclasses
import weakref

import keras
from keras import ops

from keras_bdl.posteriors.dropout import dropout_on
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
    """The arguments of `keras_bdl.predict` that a trace depends on.

    Args:
        task: What the outputs mean, or `None`.
        from_logits: Whether classifiers give logits, or `None`.
        moments: What makes mean and variance of the outputs, or `None`.
        dropout: Whether dropout is on. Defaults to `False`.
    """

    task: object
    from_logits: object
    moments: object
    dropout: bool = False


@dataclasses.dataclass(frozen=True)
class Output:
    """One output of the model.

    Args:
        name: As in error messages.
        likelihood: Its `Likelihood`.
        dtype: Its dtype as the model makes it.
    """

    name: str
    likelihood: Likelihood
    dtype: str


class Forward:
    """`model(x, training=False)` and, per output, what the draws add up.

    Made by `forward_of`, which keeps one per model and options: the weights
    are arguments, so that one trace serves every draw, and the model stays as
    it is.

    Args:
        model: A Keras model.
        options: The `ForwardOptions`.

    Attributes:
        outputs: A flat list of `Output`. Known after the first call.
        structure: The outputs in the structure of the model.
    """

    def __init__(self, model, options: ForwardOptions):
        self.options = options
        self.outputs = None
        self.structure = None
        self._model = weakref.ref(model)
        self._function = traced(model, self._call, sharded=True)

    def __call__(self, inputs, values):
        """Returns a flat list of dictionaries of tensors.

        Args:
            inputs: A batch, nested arrays.
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
        told = [
            per_output(argument, value, outputs, names)
            for argument, value in (
                ("task", self.options.task),
                ("from_logits", self.options.from_logits),
                ("loss", model.loss),
            )
        ]
        paths = keras.tree.flatten_with_path(outputs)
        return [
            _describe(path, tensor, Likelihood.resolve(*values))
            for (path, tensor), *values in zip(paths, *told, strict=True)
        ]


def forward_of(model, options: ForwardOptions):
    """Returns the `Forward` of a model, the one it had if there is one."""
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
