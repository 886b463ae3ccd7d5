"""Checks of the outputs of a model, and arguments for each of them."""

import warnings

import keras
import numpy as np
from keras import ops


def per_output(argument, value, outputs, names=None):
    """Returns what `value` says about each output, outputs flattened.

    Args:
        argument: Name of the argument, for the error message.
        value: One value for all outputs, or values in the structure of the
            outputs: a dictionary (of the outputs' keys or names; what is
            missing is `None`), or a list or tuple in their order.
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
            f"`{argument}` must be one value for all outputs, or have one for "
            "each in the structure of the model's outputs "
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
    """Looks at an output of every batch and draw for what cannot be.

    Probabilities that leave [0, 1], or whose rows do not sum to 1, are
    refused at once. Logits whose rows all lie in [0, 1] and sum to 1 are the
    output of a softmax: over a whole data set no logits do that, and a
    second softmax would make them nearly uniform without a word. Entries of
    a Bernoulli output may all lie in [0, 1] and be logits, so there is but a
    warning. A handful of examples proves nothing either way.

    Args:
        likelihood: The declared `Likelihood`.
        dtype: Of the output as the model makes it; half precision is allowed
            its rounding.
        name: What error messages call the output.
    """

    def __init__(self, likelihood, dtype: str, name: str):
        self.likelihood = likelihood
        self.name = name
        self._tolerance = _ROUNDING.get(dtype, 1e-3)
        self._inside = np.inf
        self._off = 0.0
        self._count = 0

    @staticmethod
    def measure(output, likelihood):
        """Returns two tensors about the rows of a classifier's output.

        `inside`, the lowest entry or 1 minus the highest, if that is lower,
        and `off`, the difference of the sum from 1.
        """
        lowest, highest = ops.min(output, axis=-1), ops.max(output, axis=-1)
        off = ops.zeros_like(lowest)
        if likelihood.task == "classification":
            off = ops.abs(ops.sum(output, axis=-1) - 1.0)
        return {"inside": ops.minimum(lowest, 1.0 - highest), "off": off}

    def update(self, statistics, where: str):
        """Takes in what one draw says about one batch.

        Args:
            statistics: Dictionary of NumPy arrays; of a classifier `entropy`
                and what `measure` says, otherwise `mean` and perhaps
                `variance`.
            where: Which examples and draw, for the message.
        """
        if self.likelihood.task == "regression":
            self._check_finite(statistics["mean"], where)
            variance = statistics.get("variance", np.zeros(()))
            if np.any(variance < 0):
                raise ValueError(
                    "`moments` must not return a negative variance. Received: "
                    f"{variance.min():.3g} for {where}"
                )
            self._check_finite(variance, where)
            return
        self._inside = min(self._inside, statistics["inside"].min())
        self._off = max(self._off, statistics["off"].max())
        self._count += statistics["inside"].size
        if not self.likelihood.from_logits and not self._may_be_probabilities:
            raise ValueError(
                f"{self.name} must be probabilities, in [0, 1] and of sum 1. "
                f"Received: for {where}, entries outside by "
                f"{max(0.0, -self._inside):.3g} and a sum that is off by "
                f"{self._off:.3g}. If these are logits, write "
                "`from_logits=True`."
            )
        self._check_finite(statistics["entropy"], where)

    def _check_finite(self, values, where):
        if not np.all(np.isfinite(values)):
            raise ValueError(
                f"{self.name} is NaN or infinite for {where}. Check the "
                "inputs, and whether the draws of the posterior lie where the "
                "model is finite (a smaller `scale` or variance; "
                "`batch_norm_data` for a model with BatchNormalization)."
            )

    def finish_draw(self):
        """Judges logits after one draw has seen a part of the data."""
        if self.likelihood.task == "classification" and self._looks_wrong:
            raise ValueError(
                f"{self.name} must be logits where `from_logits` is `True`. "
                "Received: rows that all lie in [0, 1] and sum to 1, as after "
                "a softmax. Write `from_logits=False`."
            )

    def finish(self):
        """Judges logits after all draws have seen all data."""
        if self.likelihood.task == "binary" and self._looks_wrong:
            warnings.warn(
                f"{self.name} is declared to be logits, and every entry lies "
                "in [0, 1]. If the model ends in a sigmoid, write "
                "`from_logits=False`.",
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
