"""The loop of a prediction over parts of the data and posterior samples."""

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_bdl.data.batches import Batch
from keras_bdl.prediction.averages import ClassificationAverage
from keras_bdl.prediction.averages import RegressionAverage
from keras_bdl.prediction.forward import Forward
from keras_bdl.prediction.forward import ForwardOptions
from keras_bdl.prediction.forward import forward_of
from keras_bdl.prediction.outputs import OutputCheck
from keras_bdl.prediction.outputs import per_output
from keras_bdl.prediction.posterior_draws import PosteriorDraws

# Number of results that may be pending when the next batch starts.
_IN_FLIGHT = 2


class PredictionRun:
    """Predicts each part of the data with each sample, and averages.

    Each batch and output has an average of its own, so the size of the data
    and of the outputs need not be known beforehand.

    Args:
        draws: The `PosteriorDraws`.
        options: The `ForwardOptions`.
        noise_stddev: Argument of `keras_bdl.predict`.
        keep_samples: Whether to keep the output of every sample.
        progress: A `keras.utils.Progbar`.
    """

    def __init__(
        self,
        draws: PosteriorDraws,
        options: ForwardOptions,
        *,
        noise_stddev: Any,
        keep_samples: bool,
        progress: keras.utils.Progbar,
    ):
        self._draws = draws
        self._options = options
        self._noise_stddev = noise_stddev
        self._keep_samples = keep_samples
        self._progress = progress
        self._steps_done = 0
        self._forward: Forward
        self._checks: list[OutputCheck] = []
        self._noises: list = []
        self._averages: list[list] = []
        self._labels: list[list] = []

    def add(self, chunk: Iterable[Batch]) -> None:
        """Adds the outputs of all samples for one part of the data.

        Args:
            chunk: Any number of batches. Each sample predicts each batch once.
        """
        first = len(self._averages)
        for draw in range(len(self._draws)):
            values = self._draws.values(draw)
            self._forward = forward_of(
                self._draws.model,
                dataclasses.replace(
                    self._options, dropout=self._draws.drops(draw)
                ),
            )
            in_flight: collections.deque = collections.deque()
            for index, batch in enumerate(chunk, first):
                statistics = self._forward(
                    batch.inputs, self._draws.for_batch(values, draw, index)
                )
                in_flight.append((index, draw, batch, statistics))
                if len(in_flight) > _IN_FLIGHT:
                    self._collect(*in_flight.popleft())
            while in_flight:
                self._collect(*in_flight.popleft())
            for check in self._checks:
                check.finish_draw()

    def finish(self) -> Any:
        """Returns a prediction in the structure of the model's outputs."""
        self._progress.update(self._steps_done, finalize=True)
        for check in self._checks:
            check.finish()
        predictions = [
            _join(averages, labels, noise)
            for averages, labels, noise in zip(
                zip(*self._averages, strict=True),
                zip(*self._labels, strict=True),
                self._noises,
                strict=True,
            )
        ]
        return keras.tree.pack_sequence_as(self._forward.structure, predictions)

    def _collect(self, index, draw, batch, statistics):
        """Adds the output of one sample to the averages of one batch."""
        if not self._checks:
            self._begin()
        if index == len(self._averages):
            self._labels.append(self._per_output("y", batch.y))
            self._averages.append([self._new(o) for o in self._forward.outputs])
        end = batch.start + batch.size
        where = f"examples {batch.start} to {end - 1}, sample {draw}"
        for check, average, output in zip(
            self._checks, self._averages[index], statistics, strict=True
        ):
            arrays = {
                name: np.asarray(tensor)[: batch.size]
                for name, tensor in output.items()
            }
            check.update(arrays, where)
            average.update(arrays)
        self._steps_done += 1
        self._progress.update(self._steps_done, finalize=False)

    def _begin(self):
        """Makes the check of each output, after the first forward pass."""
        outputs = self._forward.outputs
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
        structure = self._forward.structure
        return per_output(argument, value, structure, names=names)

    def _new(self, output):
        if output.likelihood.task == "regression":
            return RegressionAverage(self._keep_samples)
        return ClassificationAverage(self._keep_samples)


def _join(averages, labels, noise_stddev):
    y = None if labels[0] is None else np.concatenate(labels)
    if isinstance(averages[0], RegressionAverage):
        return RegressionAverage.join(averages, y, noise_stddev)
    return ClassificationAverage.join(averages, y)
