"""The average of a model's outputs over posterior samples, in one graph."""

import contextlib
import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl.posteriors.dropout_switch import dropout_on
from keras_bdl.prediction.averages import average_of
from keras_bdl.prediction.averages import merged
from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.outputs import per_output
from keras_bdl.prediction.sample_loop import average_over_samples
from keras_bdl.prediction.stateless_call import seed_states
from keras_bdl.prediction.stateless_call import stateless_call

_NOTHING = contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class AverageOptions:
    """The options of a prediction that change its graph.

    Args:
        task: Argument of `keras_bdl.predict`.
        from_logits: Argument of `keras_bdl.predict`.
        moments: Argument of `keras_bdl.predict`.
        keep_samples: Argument of `keras_bdl.predict`.
        linearized: Whether the outputs are linear in the weights, around the
            mean of the posterior. Defaults to `False`.
        positions: Positions in `model.variables` of the variables that differ
            between samples. Defaults to `()`.
        drops: Whether dropout is on. Defaults to `False`.
    """

    task: Any = None
    from_logits: Any = None
    moments: Callable | None = None
    keep_samples: bool = False
    linearized: bool = False
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


def check_moments(moments: Any) -> None:
    """Raises an error if `moments` is neither a function nor `None`.

    Args:
        moments: Argument of `keras_bdl.predict`.
    """
    if moments is not None and not callable(moments):
        raise ValueError(
            "`moments` must be a function from the model's outputs to a pair "
            f"(mean, variance), or `None`. Received: moments={moments!r}"
        )


class NetworkAverage:
    """Averages each output of a model over posterior samples, in a graph.

    The forward pass of a sample s with weights w_s is
    `f(x, w_s) = model(x, training=False)`. With `linearized`, it is

        f(x, m) + J(x) (w_s - m),   J(x) = df(x, m) / dm                  (1)

    for the mean m of the posterior, computed as one Jacobian-vector product.
    A classifier is linear in its logits: `softmax(log p)` is p for the
    probabilities p of a model that returns no logits.

    The weights are arguments, so the model does not change.

    Args:
        model: Function that returns the Keras model.
        options: The `AverageOptions`.
        uses_xla: Function that returns whether XLA compiles the graph.

    Attributes:
        outputs: A flat list of `Output`, known after the first call.
        structure: The outputs in the structure of the model.
    """

    def __init__(
        self,
        model: Callable[[], Any],
        options: AverageOptions,
        *,
        uses_xla: Callable[[], bool],
    ):
        self.options = options
        self.outputs: list[Output] = []
        self.structure: Any = None
        self._model = model
        self._uses_xla = uses_xla

    def fixed_values(self, values: Sequence[Any]) -> list[Any]:
        """Returns the second argument of a call.

        Args:
            values: For each of `model.variables` its value in all samples. If
                `linearized`, the value of a varying variable is its mean.
        """
        replaced = self._replaced(self._model())
        return [v for i, v in enumerate(values) if i not in replaced]

    def __call__(
        self, inputs: Any, fixed: Sequence[Any], samples: Sequence[Any]
    ) -> list[dict[str, Any]]:
        """Returns a flat list: the average of each output, as tensors.

        Args:
            inputs: A batch of nested tensors.
            fixed: Tensors, from `fixed_values`.
            samples: Tensors with the samples on the first axis: one for each
                of `options.positions`, then one for each seed generator.
        """
        model = self._model()
        arrays = [
            ops.convert_to_tensor(array) for array in keras.tree.flatten(inputs)
        ]
        replaced = self._replaced(model)
        others = [i for i in range(len(model.variables)) if i not in replaced]
        varying = [*self.options.positions, *seed_states(model)]

        def network(fixed, sample):
            x = keras.tree.pack_sequence_as(inputs, fixed[: len(arrays)])
            values = dict(zip(others, fixed[len(arrays) :], strict=True))
            return self._of_sample(
                x, values, dict(zip(varying, sample, strict=True))
            )

        return average_over_samples(
            network,
            [*arrays, *fixed],
            samples,
            examples=ops.shape(arrays[0])[0],  # an integer if known
            average=self._average,
            merge=self._merge,
            # The shapes of XLA are static.
            in_one_part=self._uses_xla() or self.options.keep_samples,
        )

    def _replaced(self, model):
        """Returns the positions of variables whose mean is not needed."""
        positions = () if self.options.linearized else self.options.positions
        return {*positions, *seed_states(model)}

    def _of_sample(self, inputs, values, sample):
        """Returns the outputs of one sample, a dictionary for each."""
        variables = self._model().variables
        sample = {
            i: ops.cast(value, variables[i].dtype)
            for i, value in sample.items()
        }
        if self.options.linearized:
            return self._linear(inputs, values, sample)
        outputs = self._call(inputs, values | sample)
        if self.options.moments is not None:
            return self._moments(outputs)
        self._describe(outputs)
        return [
            _values(_at_least_float32(tensor), output.likelihood)
            for tensor, output in zip(
                keras.tree.flatten(outputs), self.outputs, strict=True
            )
        ]

    def _linear(self, inputs, means, sample):
        """Returns the outputs (1), a dictionary for each."""
        positions = self.options.positions
        values = means | {i: v for i, v in sample.items() if i not in positions}
        with tf.autodiff.ForwardAccumulator(
            [means[i] for i in positions],
            [sample[i] - means[i] for i in positions],
        ) as accumulator:

            def linear(tensor):
                zero = tf.UnconnectedGradients.ZERO
                return tensor + accumulator.jvp(tensor, zero)  # (1)

            outputs = self._call(inputs, values)
            if self.options.moments is not None:
                return self._moments(keras.tree.map_structure(linear, outputs))
            self._describe(outputs)
            result = []
            for tensor, output in zip(
                keras.tree.flatten(outputs), self.outputs, strict=True
            ):
                tensor = _at_least_float32(tensor)
                logits = linear(_as_logits(tensor, output.likelihood))
                values = _values(logits, output.likelihood)
                if output.likelihood.task != "regression":
                    raw = _values(tensor, output.likelihood)
                    values["raw"] = raw["output"]
                result.append(values)
        return result

    def _call(self, inputs, values):
        model = self._model()
        values = [values[i] for i in range(len(model.variables))]
        scope = keras.StatelessScope(zip(model.variables, values, strict=True))
        with dropout_on(model) if self.options.drops else _NOTHING:
            return stateless_call(model, inputs, scope, training=False)

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

    def _describe(self, outputs):
        """Sets `outputs` and `structure`."""
        model = self._model()
        names = getattr(model, "output_names", None)
        arguments = [
            per_output(argument, value, outputs, names=names)
            for argument, value in (
                ("task", self.options.task),
                ("from_logits", self.options.from_logits),
                ("loss", getattr(model, "loss", None)),
            )
        ]
        paths = keras.tree.flatten_with_path(outputs)
        self.outputs = [
            _described(path, tensor, Likelihood.resolve(*values))
            for (path, tensor), *values in zip(paths, *arguments, strict=True)
        ]
        self.structure = keras.tree.map_structure(lambda _: None, outputs)


def _described(path, tensor, likelihood):
    one_entry = len(tensor.shape) == 1 or tensor.shape[-1] == 1
    if likelihood.task == "classification" and one_entry:
        likelihood = dataclasses.replace(likelihood, task="binary")
    place = "".join(f"[{key!r}]" for key in path)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    return Output(f"The model's output{place}", likelihood, dtype)


def _values(output, likelihood):
    if likelihood.task == "regression":
        return {"mean": output}
    if len(output.shape) == 1:
        output = ops.expand_dims(output, axis=-1)
    return {"output": output}


def _as_logits(output, likelihood):
    if likelihood.task == "regression" or likelihood.from_logits:
        return output
    smallest = np.finfo("float32").tiny
    log_p = ops.log(ops.maximum(output, smallest))
    if likelihood.task == "classification":
        return log_p
    return log_p - ops.log(ops.maximum(1.0 - output, smallest))


def _at_least_float32(output):
    output = ops.convert_to_tensor(output)
    if keras.backend.standardize_dtype(output.dtype) == "float64":
        return output
    return ops.cast(output, "float32")
