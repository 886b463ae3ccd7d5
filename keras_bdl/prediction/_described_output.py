"""The outputs of a model, with their meaning."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl.likelihoods._loss_as_likelihood import ignored_class
from keras_bdl.prediction._average_options import IDENTITY
from keras_bdl.prediction._average_options import MONTE_CARLO
from keras_bdl.prediction._average_options import PROBIT
from keras_bdl.prediction._average_options import AverageOptions
from keras_bdl.prediction._likelihood import Likelihood
from keras_bdl.prediction._outputs import per_output


@dataclasses.dataclass(frozen=True)
class DescribedOutput:
    """One output of a model, with its meaning.

    Args:
        name: Name of the output in error messages.
        likelihood: The `Likelihood` of the output.
        dtype: Dtype in which the model returns the output.
        ignore_class: The label that the compiled loss ignores. Defaults to
            `None`.
        is_vector: Whether the output has only the axis of the examples.
            Defaults to `False`.
    """

    name: str
    likelihood: Likelihood
    dtype: str
    ignore_class: int | None = None
    is_vector: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether the output is a mean of real targets."""
        return self.likelihood.task == "regression"

    def values(self, tensor: Any) -> dict[str, Any]:
        """Returns an output in the form that an average takes.

        Args:
            tensor: The output, or its logits.
        """
        if self.is_regression:
            return self.likelihood.moments(tensor)
        if len(tensor.shape) == 1:
            tensor = ops.expand_dims(tensor, axis=-1)
        return {"output": tensor}

    def logits(self, tensor: Any) -> Any:
        """Returns the values in which a linearised network is linear.

        Args:
            tensor: The output, in float32 or higher.
        """
        counts = self.likelihood.is_of_counts
        if self.likelihood.from_logits or (self.is_regression and not counts):
            return tensor
        smallest = np.finfo("float32").tiny
        log_p = ops.log(ops.maximum(tensor, smallest))
        if counts or self.likelihood.task == "classification":
            return log_p
        return log_p - ops.log(ops.maximum(1.0 - tensor, smallest))

    def linear_values(self, tensor: Any, own: Any) -> dict[str, Any]:
        """Returns the values of a linearised network, as `values` does.

        Args:
            tensor: The result of `logits`, changed by a sample.
            own: The output of the network itself.
        """
        if self.likelihood.is_of_counts:
            return self.values(ops.exp(tensor))
        if self.is_regression:
            return self.values(tensor)
        return self.values(tensor) | {"raw": self.values(own)["output"]}

    def target(self, tensor: Any) -> Any:
        """Returns the values whose exact Gaussian a link uses.

        Args:
            tensor: The output, in float32 or higher.
        """
        if self.is_regression and not self.likelihood.is_of_counts:
            return self.likelihood.moments(tensor)["mean"]
        return self.logits(tensor)

    def gaussian_values(
        self, value: Any, variance: Any, own: Any
    ) -> dict[str, Any]:
        """Returns the values that a link makes of a Gaussian of `target`.

        If the target is the log of a rate, the rate is lognormal,

            mean = exp(m + v / 2),   variance = (exp(v) - 1) mean^2       (1)

        Args:
            value: The mean m, or a sample.
            variance: The variance v for a closed form, or `None` for a sample.
            own: The output of the network itself.
        """
        if not self.is_regression:
            return self.linear_values(value, own)
        if not self.likelihood.is_of_counts:
            terms = self.likelihood.moments(own) | {"mean": value}
            return terms if variance is None else terms | {"between": variance}
        if variance is None:
            return self.linear_values(value, own)
        rate = ops.exp(value + variance / 2)  # (1)
        between = ops.expm1(variance) * ops.square(rate)  # (1)
        return self.values(rate) | {"between": between}

    def check_link(self, link: str) -> None:
        """Raises an error if a link belongs to another task.

        Args:
            link: Argument of `keras_bdl.predict`.
        """
        if link == (PROBIT if self.is_regression else IDENTITY):
            task = "regression" if self.is_regression else "classifier"
            known = [IDENTITY if self.is_regression else PROBIT, MONTE_CARLO]
            raise ValueError(
                f"`link` of a {task} must be one of {known}. {self.name} is "
                f"one. Received: link={link!r}"
            )


# What `moments` returns.
MEAN = DescribedOutput("The mean", Likelihood("regression"), "float32")


def described_outputs(
    model: keras.Model, outputs: Any, options: AverageOptions
) -> list[DescribedOutput]:
    """Returns the meaning of each of the flattened outputs.

    Args:
        model: The Keras model.
        outputs: Its nested outputs.
        options: The `AverageOptions`.
    """
    names = getattr(model, "output_names", None)
    arguments = [
        per_output(argument, value, outputs, names=names)
        for argument, value in (
            ("task", options.task),
            ("from_logits", options.from_logits),
            ("loss", getattr(model, "loss", None)),
        )
    ]
    paths = keras.tree.flatten_with_path(outputs)
    found = [
        Likelihood.resolve(*values) for values in zip(*arguments, strict=True)
    ]
    if options.noise is not None:  # those of an earlier call, from a file
        found = [
            dataclasses.replace(likelihood, noise=noise)
            for likelihood, noise in zip(found, options.noise, strict=True)
        ]
    return [
        _described(path, tensor, likelihood, ignored_class(loss))
        for (path, tensor), likelihood, loss in zip(
            paths, found, arguments[-1], strict=True
        )
    ]


def _described(path, tensor, likelihood, ignored):
    one_entry = len(tensor.shape) == 1 or tensor.shape[-1] == 1
    if likelihood.task == "classification" and one_entry:
        likelihood = dataclasses.replace(likelihood, task="binary")
    place = "".join(f"[{key!r}]" for key in path)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    ignored = None if ignored is None else int(ignored)
    name = f"The model's output{place}"
    is_vector = len(tensor.shape) == 1
    return DescribedOutput(name, likelihood, dtype, ignored, is_vector)


def moments_of(outputs: Any, moments: Callable) -> dict[str, Any]:
    """Returns the `"mean"` and the `"variance"` that a function makes.

    Args:
        outputs: The nested outputs of the model.
        moments: Argument of `keras_bdl.predict`.
    """
    pair = moments(keras.tree.map_structure(at_least_float32, outputs))
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(
            "`moments` must return a pair (mean, variance). "
            f"Received: moments(outputs)={pair}"
        )
    mean, variance = (at_least_float32(value) for value in pair)
    variance = ops.broadcast_to(variance, ops.shape(mean))
    return {"mean": mean, "variance": variance}


def names_of_outputs(structure: Any, model: keras.Model) -> list[str]:
    """Returns a name for each of the flattened outputs.

    Args:
        structure: Any values in the structure of the outputs.
        model: The Keras model.
    """
    if isinstance(structure, dict):
        paths = keras.tree.flatten_with_path(
            keras.tree.map_structure(lambda _: 0, structure)
        )
        return ["_".join(map(str, path)) for path, _ in paths]
    names = getattr(model, "output_names", None)
    count = len(keras.tree.flatten(structure))
    return names or [f"output_{i}" for i in range(count)]


def at_least_float32(output: Any) -> Any:
    """Returns an output as a tensor in float32 or float64.

    Args:
        output: Anything that becomes a tensor.
    """
    output = ops.convert_to_tensor(output)
    if keras.backend.standardize_dtype(output.dtype) == "float64":
        return output
    return ops.cast(output, "float32")
