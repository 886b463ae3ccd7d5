"""The loop of a prediction over parts of the data and posterior samples."""

import collections
import dataclasses
import warnings
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_bdl._data._batches import Batch
from keras_bdl.prediction._average_fields import standard_error
from keras_bdl.prediction._average_options import AverageOptions
from keras_bdl.prediction._averages import merged
from keras_bdl.prediction._classification_average import ClassificationAverage
from keras_bdl.prediction._forward import Forward
from keras_bdl.prediction._forward import forward_of
from keras_bdl.prediction._outputs import OutputCheck
from keras_bdl.prediction._outputs import per_output
from keras_bdl.prediction._posterior_draws import SAMPLES_OF_A_STEP
from keras_bdl.prediction._posterior_draws import PosteriorDraws
from keras_bdl.prediction._regression_average import RegressionAverage
from keras_bdl.prediction._sample_stack import SampleStacks

# Number of results that may be pending when the next batch starts.
_IN_FLIGHT = 2


class PredictionRun:
    """Predicts each part of the data with each sample, and averages.

    Each batch and output has an average of its own, so the size of the data
    and of the outputs need not be known beforehand.

    Args:
        draws: The `PosteriorDraws`.
        options: The `AverageOptions`.
        noise_stddev: Argument of `keras_bdl.predict`.
        progress: A `keras.utils.Progbar`.
        tolerance: Largest standard error of the mean at which a part of the
            data needs no more samples. Defaults to `None`: all samples.

    Attributes:
        stacks: The `SampleStacks` of the prediction.
    """

    def __init__(
        self,
        draws: PosteriorDraws,
        options: AverageOptions,
        *,
        noise_stddev: Any,
        progress: keras.utils.Progbar,
        tolerance: float | None = None,
    ):
        self._draws = draws
        self.stacks = SampleStacks(draws)
        self._options = options
        self._noise_stddev = noise_stddev
        self._progress = progress
        self._tolerance = tolerance
        self._steps_done = 0
        self._forward: Forward
        self._checks: list[OutputCheck] = []
        self._noises: list = []
        self._averages: list[list] = []
        self._labels: list[list] = []
        self._counts: list[int] = []
        self._taken = 0  # batches that `take` has returned

    def add(self, chunk: Iterable[Batch]) -> None:
        """Adds the outputs of all samples for one part of the data.

        Args:
            chunk: Any number of batches. Each sample predicts each batch once.
        """
        first = len(self._averages)
        done = 0
        for stack in self.stacks:
            self._forward = forward_of(
                self._draws.model,
                dataclasses.replace(
                    self._options,
                    positions=stack.positions,
                    drops=stack.drops,
                    blocks=self._draws.layout,
                    covered=self._draws.covered,
                ),
            )
            in_flight: collections.deque = collections.deque()
            for index, batch in enumerate(chunk, first):
                seeds = self._draws.seeds_of_batch(
                    stack.indices, self._taken + index
                )
                averages = self._forward(batch.inputs, stack, seeds)
                in_flight.append((index, batch, averages, done, len(stack)))
                if len(in_flight) > _IN_FLIGHT:
                    self._collect(*in_flight.popleft())
            while in_flight:
                self._collect(*in_flight.popleft())
            for check in self._checks:
                check.finish_part()
            done += len(stack)
            self._counts[first:] = [done] * (len(self._averages) - first)
            if self._is_exact_enough(first, done):
                break

    def take(self) -> Iterator[Any]:
        """Yields the prediction of each batch since the last call.

        Afterwards, the predictions are forgotten.
        """
        for index in range(len(self._averages)):
            yield self._predictions(slice(index, index + 1))
        self._taken += len(self._averages)
        self._averages, self._labels, self._counts = [], [], []

    def finish(self) -> None:
        """Finishes the progress bar and the checks of the outputs."""
        # Keras up to 3.12 needs the total for `verbose=2`.
        self._progress.target = self._steps_done
        self._progress.update(self._steps_done, finalize=True)
        for check in self._checks:
            check.finish()

    def prediction(self) -> Any:
        """Returns a prediction in the structure of the model's outputs."""
        return self._predictions(slice(None))

    def _predictions(self, batches):
        """Returns the prediction of some batches."""
        counts = self._counts[batches]
        predictions = [
            self._join(output, averages, counts, labels, noise)
            for output, averages, labels, noise in zip(
                self._forward.average.outputs,
                zip(*self._averages[batches], strict=True),
                zip(*self._labels[batches], strict=True),
                self._noises,
                strict=True,
            )
        ]
        return keras.tree.pack_sequence_as(
            self._forward.average.structure, predictions
        )

    def _collect(self, index, batch, averages, done, more):
        """Adds the average over some samples for one batch.

        Args:
            index: Index of the batch.
            batch: The `Batch`.
            averages: For each output, the average over the samples.
            done: Number of samples that the batch has seen before.
            more: Number of samples in `averages`.
        """
        if not self._checks:
            self._begin()
        examples = f"examples {batch.start} to {batch.start + batch.size - 1}"
        arrays = []
        for check, average in zip(self._checks, averages, strict=True):
            average = {
                name: np.asarray(tensor)[: batch.size]
                for name, tensor in average.items()
            }
            check.update(average, examples, done)
            arrays.append(average)
        if done:
            arrays = [
                merged(total, average, done, more)
                for total, average in zip(
                    self._averages[index], arrays, strict=True
                )
            ]
            self._averages[index] = arrays
        else:
            self._labels.append(self._per_output("y", batch.y))
            self._averages.append(arrays)
        self._steps_done += more
        self._progress.update(self._steps_done, finalize=False)

    def _begin(self):
        """Makes the check of each output, after the first forward pass."""
        outputs = self._forward.average.outputs
        self._noises = self._per_output("noise_stddev", self._noise_stddev)
        for output, noise in zip(outputs, self._noises, strict=True):
            if noise is not None and output.likelihood.task != "regression":
                raise ValueError(
                    f"`noise_stddev` must be `None` for a classifier. "
                    f"{output.name} is one, and its probabilities already "
                    f"hold the noise. Received: noise_stddev={noise}"
                )
        self._checks = [
            OutputCheck(o.likelihood, o.dtype, o.name) for o in outputs
        ]

    def _per_output(self, argument, value):
        names = getattr(self._draws.model, "output_names", None)
        structure = self._forward.average.structure
        return per_output(argument, value, structure, names=names)

    def _join(self, output, averages, counts, labels, noise_stddev):
        y = None if labels[0] is None else np.concatenate(labels)
        if output.likelihood.task == "regression":
            return RegressionAverage.join(averages, counts, y, noise_stddev)
        return ClassificationAverage.join(
            averages, counts, y, ignore_class=output.ignore_class
        )

    def _is_exact_enough(self, first, done):
        """Returns whether the batches from `first` on need no more samples."""
        if self._tolerance is None or done % SAMPLES_OF_A_STEP:
            return False
        largest = max(
            float(np.max(_counted(standard_error(average, done), average)))
            for averages in self._averages[first:]
            for average in averages
        )
        if largest > self._tolerance and done == len(self._draws):
            warnings.warn(
                f"{done} samples did not reach `tolerance`. Pass a larger "
                "`tolerance`, or a number of `samples`. Received: "
                f"tolerance={self._tolerance}, standard error={largest:.3g}",
                stacklevel=4,
            )
        return largest <= self._tolerance


def _counted(values, average):
    """Returns values of an average, 0 where a mask leaves an entry out."""
    mask = average.get("mask")
    if mask is None:
        return values
    mask = np.reshape(mask, (*mask.shape, *[1] * (values.ndim - mask.ndim)))
    return np.where(mask, values, 0.0)
