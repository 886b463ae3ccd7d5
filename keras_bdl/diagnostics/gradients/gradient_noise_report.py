"""Report on the noise of mini-batch gradients."""

import dataclasses
import math

import numpy as np

from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True)
class GradientNoise(Report):
    """Covariance of mini-batch gradients. Made by `gradient_noise`.

    Attributes:
        trace: tr(C), of the gradient of a single example.
        trace_error: Its standard error, over the batches; NaN for two.
        learning_rate: The constant one that Mandt et al. call optimal.
        gradient_norm: Length of the mean gradient.
        batches: Number of batches.
        batch_size: B, that of the first.
        examples: How many examples they have.
        dataset_size: N.
        weights: d, number of weights.
        momentum: For the learning rate.
        variables: Dict from the path of a variable to its share of `trace`.
    """

    trace: float
    trace_error: float
    learning_rate: float
    gradient_norm: float
    batches: int
    batch_size: int
    examples: int
    dataset_size: int
    weights: int
    momentum: float
    variables: dict

    @classmethod
    def of(
        cls,
        names,
        squares,
        gradient,
        weights,
        examples,
        batch_size,
        dataset_size,
        momentum,
    ):
        """Returns the report on what was added up.

        Args:
            names: Paths of the variables.
            squares: Array `(batches - 1, variables)` of (2) of
                `gradient_noise`.
            gradient: The square of the mean gradient.
            weights: Number of weights.
            examples: Number of examples.
            batch_size: Of the first batch.
            dataset_size: N.
            momentum: Of SGD.
        """
        terms = squares.sum(1)
        trace = float(terms.mean())  # (3)
        rate = math.inf
        if trace:
            rate = 2 * batch_size * weights / (dataset_size * trace)  # (4)
        return cls(
            trace=trace,
            trace_error=_standard_error(terms),
            learning_rate=(1 - momentum) * rate,
            gradient_norm=math.sqrt(gradient),
            batches=len(squares) + 1,
            batch_size=batch_size,
            examples=examples,
            dataset_size=dataset_size,
            weights=weights,
            momentum=momentum,
            variables=dict(zip(names, squares.mean(0).tolist(), strict=True)),
        )

    def title(self) -> str:
        """Returns the first line."""
        return (
            f"Noise of the gradients of {self.batches} batches of "
            f"{self.batch_size}, {self.examples} examples, {self.weights} "
            "weights"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        return [
            (
                "Covariance C of the gradient of an example",
                [
                    ["", "trace", "error"],
                    ["all of these", self.trace, self.trace_error],
                    *([n, trace] for n, trace in self.variables.items()),
                ],
            ),
            (
                f"SGD with momentum {self.momentum:g}, {self.dataset_size} "
                "training examples",
                [
                    ["learning rate", self.learning_rate],
                    ["length of the mean gradient", self.gradient_norm],
                ],
            ),
        ]


def _standard_error(terms):
    if len(terms) < 2:
        return math.nan
    return float(np.std(terms, ddof=1) / math.sqrt(len(terms)))
