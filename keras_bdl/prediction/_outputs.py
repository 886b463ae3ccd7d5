"""The outputs of a model: what they mean, and whether they fit the meaning."""

import dataclasses
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_choice
from keras_bdl.likelihoods._loss_as_likelihood import ignored_class
from keras_bdl.likelihoods._loss_as_likelihood import loss_function

_CATEGORICAL = (
    keras.losses.categorical_crossentropy,
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
    keras.losses.kl_divergence,
)
_BINARY = (
    keras.losses.binary_crossentropy,
    keras.losses.binary_focal_crossentropy,
)
_REGRESSION = (
    keras.losses.mean_squared_error,
    keras.losses.mean_absolute_error,
    keras.losses.mean_absolute_percentage_error,
    keras.losses.mean_squared_logarithmic_error,
    keras.losses.huber,
    keras.losses.log_cosh,
)
_TASKS = ("classification", "binary", "regression")


class PoissonNoise:
    """The noise of counts, whose variance is their mean."""

    def moments(self, outputs: Any) -> tuple[Any, Any]:
        """Returns the mean and the variance of the counts."""
        return outputs, outputs


POISSON = PoissonNoise()


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """The meaning of a model's output: the distribution that it describes.

    `noise` of a regression has a method `moments` that turns the output into
    means and variances. `None` means: the output is the mean, and the variance
    is unknown.
    """

    task: str  # "classification", "binary" (Bernoulli entries), "regression"
    from_logits: bool = False
    noise: Any = None

    @property
    def is_of_counts(self) -> bool:
        """Whether the output is the rate of a Poisson distribution."""
        return self.noise is POISSON

    def moments(self, output: Any) -> dict[str, Any]:
        """Returns the `"mean"` of a regression, and the known `"variance"`."""
        if self.noise is None:
            return {"mean": output}
        mean, variance = self.noise.moments(output)
        return {"mean": mean, "variance": variance}

    @classmethod
    def of_loss(cls, loss: Any) -> "Likelihood | None":
        """Returns the likelihood of a compiled loss, or `None` if unknown."""
        loss, config = loss_function(loss)
        logits = config.get("from_logits", False)
        if loss in _CATEGORICAL:
            if config.get("axis", -1) != -1:
                raise ValueError(
                    "The loss must have the classes on the last axis. "
                    f"Received: a loss with axis={config['axis']}"
                )
            return cls("classification", logits)
        if loss in _BINARY:
            return cls("binary", logits)
        if loss is keras.losses.poisson:
            return cls("regression", noise=POISSON)
        if loss in _REGRESSION:
            return cls("regression")
        return None

    @classmethod
    def resolve(cls, task: Any, from_logits: Any, loss: Any) -> "Likelihood":
        """Returns the likelihood that the arguments or the loss define.

        An argument that is not `None` replaces the value from the loss.
        """
        check_choice("task", task, (None, *_TASKS))
        check_choice("from_logits", from_logits, (None, True, False))
        if hasattr(loss, "moments") and task in (None, "regression"):
            return cls("regression", noise=loss)
        compiled = cls.of_loss(loss)
        if task == "regression":
            if compiled is None or compiled.task != task:
                return cls(task)
            return compiled
        if compiled is not None and compiled.task == "regression":
            if task is None:
                return compiled
            compiled = None
        if from_logits is None and compiled is not None:
            from_logits = compiled.from_logits
        if task is None and compiled is not None:
            task = compiled.task
        if task is None or from_logits is None:
            raise ValueError(
                "`task` and `from_logits` must be given, because the compiled "
                "loss does not say what the output means. "
                'Write `task="classification", from_logits=True` for logits, '
                "`from_logits=False` for probabilities, or "
                '`task="regression"`, in '
                "`options=keras_bdl.prediction.PredictOptions(...)`. "
                f"Received: task={task!r}, from_logits={from_logits}, "
                f"loss={loss!r}"
            )
        return cls(task, from_logits)


@dataclasses.dataclass(frozen=True)
class DescribedOutput:
    """One output of a model, with its meaning."""

    name: str  # in error messages
    likelihood: Likelihood
    dtype: str
    ignore_class: int | None = None
    is_vector: bool = False  # only the axis of the examples

    @property
    def is_regression(self) -> bool:
        """Whether the output is a mean of real targets."""
        return self.likelihood.task == "regression"

    def values(self, tensor: Any) -> dict[str, Any]:
        """Returns an output in the form that an average takes."""
        if self.is_regression:
            return self.likelihood.moments(tensor)
        if len(tensor.shape) == 1:
            tensor = ops.expand_dims(tensor, axis=-1)
        return {"output": tensor}

    def logits(self, tensor: Any) -> Any:
        """Returns the values in which a linearised network is linear."""
        counts = self.likelihood.is_of_counts
        if self.likelihood.from_logits or (self.is_regression and not counts):
            return tensor
        smallest = np.finfo("float32").tiny
        log_p = ops.log(ops.maximum(tensor, smallest))
        if counts or self.likelihood.task == "classification":
            return log_p
        return log_p - ops.log(ops.maximum(1.0 - tensor, smallest))

    def linear_values(self, tensor: Any, own: Any) -> dict[str, Any]:
        """Returns the values of a linearised network, as `values` does."""
        if self.likelihood.is_of_counts:
            return self.values(ops.exp(tensor))
        if self.is_regression:
            return self.values(tensor)
        return self.values(tensor) | {"raw": self.values(own)["output"]}

    def target(self, tensor: Any) -> Any:
        """Returns the values whose exact Gaussian a link uses."""
        if self.is_regression and not self.likelihood.is_of_counts:
            return self.likelihood.moments(tensor)["mean"]
        return self.logits(tensor)


# What `moments` returns.
MEAN = DescribedOutput("The mean", Likelihood("regression"), "float32")


def described_outputs(
    model: keras.Model, outputs: Any, options: Any
) -> list[DescribedOutput]:
    """Returns the meaning of each of the flattened outputs.

    The options have `task` and `from_logits` for all outputs, and `noise`.
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


def _described(
    path: tuple, tensor: Any, likelihood: Likelihood, ignored: Any
) -> DescribedOutput:
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
    """Returns the `"mean"` and the `"variance"` that a function makes."""
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
    """Returns a name for each of the flattened outputs."""
    if isinstance(structure, dict):
        paths = keras.tree.flatten_with_path(
            keras.tree.map_structure(lambda _: 0, structure)
        )
        return ["_".join(map(str, path)) for path, _ in paths]
    names = getattr(model, "output_names", None)
    count = len(keras.tree.flatten(structure))
    return names or [f"output_{i}" for i in range(count)]


def at_least_float32(output: Any) -> Any:
    """Returns an output as a tensor in float32 or float64."""
    output = ops.convert_to_tensor(output)
    if keras.backend.standardize_dtype(output.dtype) == "float64":
        return output
    return ops.cast(output, "float32")


def per_output(
    argument: str,
    value: Any,
    outputs: Any,
    *,
    names: Sequence[str] | None = None,
) -> list:
    """Returns the value of an argument for each of the flattened outputs.

    A dictionary has the keys or the `names` of the outputs; a missing key means
    `None`. A list or tuple has the order of the outputs.
    """
    paths = [path for path, _ in keras.tree.flatten_with_path(outputs)]
    if not isinstance(value, (dict, list, tuple)):
        return [value] * len(paths)
    if isinstance(value, dict) and not isinstance(outputs, dict):
        paths = [(name,) for name in names or ()]
    elif not isinstance(value, dict) and len(value) == len(paths):
        return list(value)
    known = {path[0] for path in paths if path}
    if not isinstance(value, dict) or not set(value) <= known:
        raise ValueError(
            f"`{argument}` must be one value for all outputs, or one for "
            "each output in the structure "
            f"{keras.tree.map_structure(lambda _: '.', outputs)}"
            f"{f', named {list(names)}' if names else ''}. "
            f"Received: {argument}={value!r}"
        )
    return [_follow(value, path) for path in paths]


def _follow(value: Any, path: tuple) -> Any:
    for key in path:
        if value is None:
            return None
        value = value.get(key) if isinstance(value, dict) else value[key]
    return value


_ROUNDING = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
_FEW = 8


class OutputCheck:
    """Checks outputs against the declared `task` and `from_logits`.

    Probabilities outside [0, 1], and rows that do not sum to 1, raise an error
    at once. If outputs are declared as logits, but all rows lie in [0, 1] and
    sum to 1, `finish_part` raises an error: such rows come from a softmax, and
    a second softmax would make them nearly uniform. For a Bernoulli output,
    correct logits may happen to lie all in [0, 1]. In that case `finish` only
    warns. With fewer than eight rows, logits are not checked.
    """

    def __init__(self, likelihood: Likelihood, dtype: str, name: str):
        self.likelihood = likelihood
        self.name = name
        self._tolerance = _ROUNDING.get(dtype, 1e-3)
        self._inside = np.inf
        self._off = 0.0
        self._count = 0

    @staticmethod
    def measure(output: Any, likelihood: Likelihood) -> dict[str, Any]:
        """Returns two tensors with a number for each row of the output.

        `inside` is the smaller of the lowest entry and 1 minus the highest
        entry: negative if an entry lies outside [0, 1]. `off` is the distance
        of the row's sum from 1, or 0 for a Bernoulli output.
        """
        lowest, highest = ops.min(output, axis=-1), ops.max(output, axis=-1)
        off = ops.zeros_like(lowest)
        if likelihood.task == "classification":
            off = ops.abs(ops.sum(output, axis=-1) - 1.0)
        return {"inside": ops.minimum(lowest, 1.0 - highest), "off": off}

    def update(
        self, average: dict[str, np.ndarray], examples: str, first_sample: int
    ) -> None:
        """Checks the outputs of several samples for one batch."""
        if self.likelihood.task == "regression":
            lowest = average.get("lowest_within", np.zeros(()))
            if np.any(lowest < 0):
                raise ValueError(
                    "The noise must not have a negative variance. Use "
                    "`moments` that returns none, or for a Poisson loss an "
                    "output that is positive, as after `softplus`. Received: "
                    f"{lowest.min():.3g} for {examples}"
                )
            self._check_finite(average, examples, first_sample)
            return
        # `fmin` and `fmax` skip NaN, for which there is another message.
        inside, off = average["inside"], average["off"]
        self._inside = np.fmin.reduce(inside, axis=None, initial=self._inside)
        self._off = np.fmax.reduce(off, axis=None, initial=self._off)
        self._count += inside.size
        if not self.likelihood.from_logits and not self._may_be_probabilities:
            raise ValueError(
                f"{self.name} must hold probabilities, in [0, 1] and of sum "
                f"1. Received: for {examples}, entries outside by "
                f"{max(0.0, -self._inside):.3g} and a sum that is off by "
                f"{self._off:.3g}. Write `from_logits=True` for logits."
            )
        self._check_finite(average, examples, first_sample)

    def _check_finite(
        self, average: dict[str, np.ndarray], examples: str, first_sample: int
    ) -> None:
        bad = average["not_finite"]
        if np.any(bad):
            sample = first_sample + int(bad[bad > 0].min()) - 1
            raise ValueError(
                f"{self.name} must be finite. Received: NaN or infinity for "
                f"{examples}, sample {sample}. Check the inputs. If only some "
                "samples fail, use a posterior with a smaller `scale` or "
                "variance, and pass `batch_norm_data` for a model with "
                "BatchNormalization."
            )

    def finish_part(self) -> None:
        """Raises an error if all logits so far look like probabilities."""
        if self.likelihood.task == "classification" and self._looks_wrong:
            raise ValueError(
                f"{self.name} must hold logits if `from_logits=True`. "
                "Received: rows that all lie in [0, 1] and sum to 1, as after "
                "a softmax. Write `from_logits=False`."
            )

    def finish(self) -> None:
        """Warns if all Bernoulli logits look like probabilities."""
        if self.likelihood.task == "binary" and self._looks_wrong:
            warnings.warn(
                f"{self.name} was declared as logits, but every entry lies in "
                "[0, 1]. Write `from_logits=False` if the model ends in a "
                "sigmoid.",
                stacklevel=4,
            )

    @property
    def _looks_wrong(self) -> bool:
        enough = self._count >= _FEW
        logits = self.likelihood.from_logits
        return enough and logits and self._may_be_probabilities

    @property
    def _may_be_probabilities(self) -> bool:
        return self._inside >= -self._tolerance and self._off <= self._tolerance


def masks_of(outputs: Any) -> list:
    """Returns the mask of each of the flattened outputs, or `None`.

    A mask is as in Keras: `True` where an entry counts, with the first axes of
    the output. A mask of positions that the output no longer has is `None`.
    """
    return [_mask_of(tensor) for tensor in keras.tree.flatten(outputs)]


def with_masks(values: list[dict[str, Any]], masks: Sequence) -> list:
    """Returns the values of each output, with its `"mask"` if it has one."""
    # A function `moments` makes one output of all, which gets the first mask.
    if len(values) == 1:
        masks = [m for m in masks if m is not None][:1] or [None]
    return [
        terms if mask is None else {**terms, "mask": mask}
        for terms, mask in zip(values, masks, strict=True)
    ]


def set_mask(tensor: Any, mask: Any) -> None:
    """Passes a mask on to a tensor, if the tensor has the masked positions."""
    if _fits(mask.shape, tensor.shape):
        _keras.set_mask(tensor, mask)


def _mask_of(tensor: Any) -> Any:
    mask = _keras.mask_of(tensor)
    if mask is None:
        return None
    mask = ops.cast(mask, "bool")
    # The last axis holds the classes or the targets of a position.
    shape = tensor.shape[: max(1, len(tensor.shape) - 1)]
    return mask if _fits(mask.shape, shape) else None


def _fits(mask: tuple, shape: tuple) -> bool:
    """Returns whether the axes of a mask may be the first ones of a shape."""
    return len(mask) <= len(shape) and all(
        known is None or size is None or known == size
        for known, size in zip(mask, shape, strict=False)
    )
