"""Checks of a model's outputs, and arguments split over the outputs."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl.prediction._likelihood import Likelihood


def per_output(
    argument: str,
    value: Any,
    outputs: Any,
    *,
    names: Sequence[str] | None = None,
) -> list:
    """Returns the value of an argument for each of the flattened outputs.

    Args:
        argument: Name of the argument, for the error message.
        value: One value for all outputs, or values in the structure of the
            outputs. A dictionary has the keys or the names of the outputs (a
            missing key means `None`). A list or tuple has the order of the
            outputs.
        outputs: The nested outputs.
        names: The names of the flattened outputs. Defaults to `None`.
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


def _follow(value, path):
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

    Args:
        likelihood: The declared `Likelihood`.
        dtype: Dtype in which the model returns the output. Half precision
            gets a tolerance for its rounding.
        name: Name of the output in error messages.
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

        Args:
            output: Output of a classifier.
            likelihood: The declared `Likelihood`.
        """
        lowest, highest = ops.min(output, axis=-1), ops.max(output, axis=-1)
        off = ops.zeros_like(lowest)
        if likelihood.task == "classification":
            off = ops.abs(ops.sum(output, axis=-1) - 1.0)
        return {"inside": ops.minimum(lowest, 1.0 - highest), "off": off}

    def update(
        self, average: dict[str, np.ndarray], examples: str, first_sample: int
    ) -> None:
        """Checks the outputs of several samples for one batch.

        Args:
            average: An average of `ClassificationAverage` or
                `RegressionAverage`, as NumPy arrays.
            examples: The examples, for the error message.
            first_sample: Index of the first sample in the average.
        """
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

    def _check_finite(self, average, examples, first_sample):
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
    def _looks_wrong(self):
        enough = self._count >= _FEW
        return (
            enough
            and self.likelihood.from_logits
            and self._may_be_probabilities
        )

    @property
    def _may_be_probabilities(self):
        return self._inside >= -self._tolerance and self._off <= self._tolerance
