"""Noise of minibatch gradients and the learning rate that follows from it."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_verbose
from keras_bdl._backend import value_and_grad
from keras_bdl._data._batches import TrainingData
from keras_bdl._data._dataset_size import different_examples
from keras_bdl._reports import Report
from keras_bdl.diagnostics._training_loss import TrainingLoss
from keras_bdl.diagnostics._training_loss import left_as_it_was
from keras_bdl.diagnostics._training_loss import num_examples


@dataclasses.dataclass(frozen=True)
class GradientNoiseReport(Report):
    """Covariance of minibatch gradients, made by `gradient_noise`.

    Attributes:
        trace: tr(C), with C the covariance of the gradient of one example.
        trace_error: Standard error of `trace` over the batches, NaN for two.
        learning_rate: The constant rate that Mandt et al. call optimal.
        gradient_norm: Length of the mean gradient.
        batches: Number of batches.
        batch_size: B, the size of the first batch.
        examples: Number of examples in all batches.
        dataset_size: N.
        weights: d, number of weights.
        momentum: Momentum of SGD that `learning_rate` assumes.
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

    def title(self) -> str:
        return (
            f"Noise of the gradients of {self.batches} batches of "
            f"{self.batch_size}, {self.examples} examples, {self.weights} "
            "weights"
        )

    def sections(self) -> list:
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


def gradient_noise(
    model: keras.Model,
    data: Data,
    *,
    loss: Loss | None = None,
    momentum: float = 0.0,
    dataset_size: int | None = None,
    training: bool = True,
    batch_size: int | None = None,
    verbose: int | str = "auto",
) -> GradientNoiseReport:
    """Measures the covariance of minibatch gradients.

    Use it to choose the learning rate of SGD before `keras_bdl.SWAG`. The
    gradient of the mean loss of n examples has the covariance C / n, with C
    the covariance of the gradient of one example. From the gradients g_b of M
    batches of n_b examples, in random order,

        m_b = m_(b-1) + n_b / N_b (g_b - m_(b-1)),   N_b = n_1 + ... + n_b (1)
        e_b = n_b N_(b-1) / N_b |g_b - m_(b-1)|^2,   b = 2 ... M           (2)
        trace = 1/(M-1) sum_b e_b                                          (3)

    The expectation of (3) is tr(C), for batches of any sizes. For batches of
    one example, (3) is the trace of the sample covariance. Without momentum,
    and under the assumptions of Mandt et al., the stationary distribution of
    SGD is closest to the posterior if the learning rate is constant at

        learning_rate = 2 (B / N) d / tr(C)                                (4)

    for d weights, N examples and batches of B examples. A `momentum` m
    multiplies the steps of SGD by 1 / (1 - m), so (4) is multiplied by 1 - m.

    Let V be the covariance of the gradient of a batch. The appendix of Maddox
    et al. has (4) with `tr(C) = tr(V) / B`. This equation holds if the gradient
    is the sum over a batch. For the mean over a batch, as in (1) to (3),
    `tr(C) = B tr(V)`. If V belongs to the mean, the formula of the appendix
    gives B^2 times the learning rate (4).

    Args:
        model: A built Keras model with ordinary weights, which do not change.
        data: The training data `(x, y)` or `(x, y, sample_weight)` as arrays,
            or a batched `tf.data.Dataset` or `keras.utils.PyDataset` with at
            least two batches. The data are read once, in their order. Shuffle
            sorted examples first.
        loss: The negative log-likelihood, as `compile` takes it. Defaults to
            `None`, the loss that the model is compiled with.
        momentum: m, the momentum of `keras.optimizers.SGD`. Defaults to `0.0`.
        dataset_size: N in (4). Defaults to `None`, the number of examples in
            `data`.
        training: Whether BatchNorm uses the statistics of each batch and
            dropout is active. (3) then includes the noise of both. With
            BatchNorm, the gradient of a single example is not defined, and
            tr(C) is valid for this batch size only. Defaults to `True`.
        batch_size: B for arrays. Defaults to `None`, 32. For other data, B is
            the size of the first batch.
        verbose: `0` for silence, `1` for a progress bar, `2` for one line.
            Defaults to `"auto"`, `1`.

    Returns:
        A `GradientNoiseReport`, which prints as a table.

    Example:

    ```python
    noise = keras_bdl.diagnostics.gradient_noise(
        model, (x, y), momentum=0.9, batch_size=16
    )
    noise.trace, noise.learning_rate
    ```

    Reference:
        - [Mandt et al., 2017](https://arxiv.org/abs/1704.04289), theorem 1
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.2
    """
    step = _NoiseStep.of(model, loss, check_bool("training", training))
    check_number("momentum", momentum, at_least=0.0, below=1.0)
    if dataset_size is not None:
        check_count("dataset_size", dataset_size)
    source, data = data, TrainingData(data, batch_size)
    bar = keras.utils.Progbar(data.num_batches, verbose=check_verbose(verbose))
    squares: list[Any] = []
    first = 0
    variables = model.trainable_variables
    seen = ops.zeros((), "float32")
    means = [ops.zeros(v.shape, "float32") for v in variables]
    with left_as_it_was(model):
        for i, batch in enumerate(data, 1):
            first = first or batch.size
            seen, means, square = step(batch, seen, means)
            squares.append(square)
            bar.update(i, finalize=False)
    bar.update(i, finalize=True)
    if len(squares) < 2:
        raise ValueError(
            "`data` must have at least two batches. Received: one batch of "
            f"{first} examples"
        )
    found = np.array([s.numpy() for s in squares[1:]], "float64")
    terms = found.sum(1)
    trace = float(terms.mean())  # (3)
    weights = sum(math.prod(v.shape) for v in variables)
    size = dataset_size or different_examples(source, data.examples)
    rate = 2 * first * weights / (size * trace) if trace else math.inf  # (4)
    gradient = sum(float(ops.sum(ops.square(m))) for m in means)
    return GradientNoiseReport(
        trace=trace,
        trace_error=_standard_error(terms),
        learning_rate=(1 - momentum) * rate,
        gradient_norm=math.sqrt(gradient),
        batches=len(squares),
        batch_size=first,
        examples=data.examples,
        dataset_size=size,
        weights=weights,
        momentum=float(momentum),
        variables=dict(
            zip(
                [v.path for v in variables], found.mean(0).tolist(), strict=True
            )
        ),
    )


def _standard_error(terms: np.ndarray) -> float:
    if len(terms) < 2:
        return math.nan
    return float(np.std(terms, ddof=1) / math.sqrt(len(terms)))


class _NoiseStep(TrainingLoss):
    """Adds the gradient of one batch to (1) and (2) of `gradient_noise`."""

    def _step(self, batch: Any, seen: Any, means: Any) -> Any:
        def total() -> Any:
            found = self.forward(batch)
            return found.loss + found.penalty

        variables = self.model.trainable_variables
        _, gradients = value_and_grad(total, variables, dense=True)
        deviations = [
            ops.cast(g, "float32") - m
            for g, m in zip(gradients, means, strict=True)
        ]
        size = num_examples(batch)
        share = size / (seen + size)
        squares = ops.stack([ops.sum(ops.square(d)) for d in deviations])
        means = [
            m + share * d for m, d in zip(means, deviations, strict=True)
        ]  # (1)
        return seen + size, means, share * seen * squares  # (2)
