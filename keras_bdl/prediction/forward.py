"""The traced forward pass of a prediction."""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.posteriors.dropout_switch import dropout_on
from keras_bdl.prediction.averages import average_of
from keras_bdl.prediction.averages import merged
from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.outputs import per_output
from keras_bdl.prediction.sample_loop import average_over_samples
from keras_bdl.prediction.sample_stack import SampleStack
from keras_bdl.prediction.stateless_call import seed_states
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
        keep_samples: Argument of `keras_bdl.predict`.
        positions: Positions in `model.variables` of the variables that differ
            between samples. Defaults to `()`.
        drops: Whether dropout is on. Defaults to `False`.
    """

    task: Any
    from_logits: Any
    moments: Callable | None
    keep_samples: bool
    positions: tuple[int, ...] = ()
    drops: bool = False


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
    """Averages each output of a model over posterior samples.

    The forward pass of a sample is `model(x, training=False)`. All samples run
    in one graph. The weights are arguments of the graph, so the model does not
    change. `forward_of` keeps one object for each model and options.

    Args:
        model: A Keras model.
        options: The `ForwardOptions`.

    Attributes:
        outputs: A flat list of `Output`, known after the first call.
        structure: The outputs in the structure of the model.
    """

    def __init__(self, model: keras.Model, options: ForwardOptions):
        self.options = options
        self.outputs: list[Output] = []
        self.structure: Any = None
        self._model = weakref.ref(model)
        self._function = traced(model, self._call, sharded=True)

    def __call__(
        self, inputs: Any, stack: SampleStack, seeds: list[tf.Tensor]
    ) -> list[dict[str, Any]]:
        """Returns a flat list: the average of each output, as tensors.

        Args:
            inputs: A batch of nested arrays.
            stack: The samples.
            seeds: For each seed generator of the model, a tensor with a state
                for each sample.
        """
        model: Any = self._model()
        varying = {*self.options.positions, *seed_states(model)}
        fixed = [v for i, v in enumerate(stack.values) if i not in varying]
        return self._function(inputs, fixed, [*stack.stacked, *seeds])

    def _call(self, inputs, fixed, samples):
        model: Any = self._model()
        arrays = [
            ops.convert_to_tensor(array) for array in keras.tree.flatten(inputs)
        ]
        varying = [*self.options.positions, *seed_states(model)]
        others = [i for i in range(len(model.variables)) if i not in varying]

        def network(fixed, sample):
            x = keras.tree.pack_sequence_as(inputs, fixed[: len(arrays)])
            values = dict(zip(others, fixed[len(arrays) :], strict=True))
            values |= zip(varying, sample, strict=True)
            return self._outputs(x, [values[i] for i in sorted(values)])

        return average_over_samples(
            network,
            [*arrays, *fixed],
            samples,
            examples=ops.shape(arrays[0])[0],
            average=self._average,
            merge=self._merge,
            # The shapes of XLA are static.
            in_one_part=bool(model.jit_compile) or self.options.keep_samples,
        )

    def _outputs(self, inputs, values):
        """Returns the outputs of one sample, a dictionary for each."""
        model: Any = self._model()
        scope = keras.StatelessScope(zip(model.variables, values, strict=True))
        with dropout_on(model) if self.options.drops else _NOTHING:
            outputs = stateless_call(model, inputs, scope, training=False)
        if self.options.moments is not None:
            return self._moments(outputs)
        self.outputs = self._describe(model, outputs)
        self.structure = keras.tree.map_structure(lambda _: None, outputs)
        return [
            _values(tensor, output.likelihood)
            for tensor, output in zip(
                keras.tree.flatten(outputs), self.outputs, strict=True
            )
        ]

    def _average(self, outputs):
        return [
            average_of(output.likelihood).of_samples(
                values, output.likelihood, self.options.keep_samples
            )
            for output, values in zip(self.outputs, outputs, strict=True)
        ]

    def _merge(self, first, second, first_count, second_count):
        return [
            merged(one, other, first_count, second_count)
            for one, other in zip(first, second, strict=True)
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


def _values(output, likelihood):
    output = _at_least_float32(output)
    if likelihood.task == "regression":
        return {"mean": output}
    if len(output.shape) == 1:
        output = ops.expand_dims(output, axis=-1)
    return {"output": output}


def _at_least_float32(output):
    output = ops.convert_to_tensor(output)
    if keras.backend.standardize_dtype(output.dtype) == "float64":
        return output
    return ops.cast(output, "float32")
