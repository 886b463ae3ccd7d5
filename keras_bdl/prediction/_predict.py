"""Prediction that averages over posterior samples."""

import collections
import contextlib
import itertools
import warnings
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_verbose
from keras_bdl._data._batches import Batch
from keras_bdl._data._batches import Batches
from keras_bdl._data._batches import preprocessed
from keras_bdl.distribute._workers import lost_worker_explained
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._averages import ClassificationAverage
from keras_bdl.prediction._averages import RegressionAverage
from keras_bdl.prediction._averages import merged
from keras_bdl.prediction._averages import standard_error
from keras_bdl.prediction._averages import with_all_samples
from keras_bdl.prediction._network_average import AverageOptions
from keras_bdl.prediction._network_average import NetworkAverage
from keras_bdl.prediction._options import DEFAULT_OPTIONS
from keras_bdl.prediction._options import EXACT_LINKS
from keras_bdl.prediction._options import PredictOptions
from keras_bdl.prediction._options import check_options
from keras_bdl.prediction._outputs import DescribedOutput
from keras_bdl.prediction._outputs import OutputCheck
from keras_bdl.prediction._outputs import per_output
from keras_bdl.prediction._posterior_samples import AUTO
from keras_bdl.prediction._posterior_samples import SAMPLES_OF_A_STEP
from keras_bdl.prediction._posterior_samples import PosteriorDraws
from keras_bdl.prediction._posterior_samples import SampleStack
from keras_bdl.prediction._posterior_samples import SampleStacks
from keras_bdl.prediction._posterior_samples import chosen_draws
from keras_bdl.prediction._stateless_call import TRACING
from keras_bdl.prediction._stateless_call import ModelCache
from keras_bdl.prediction._stateless_call import check_model
from keras_bdl.prediction._stateless_call import traced


def predict(
    model: keras.Model,
    x: Data,
    posterior: Posterior | None = None,
    *,
    samples: int | str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    batch_norm_data: Data | None = None,
    keep_samples: bool = False,
    on_batch: Callable[[Any], None] | None = None,
    options: PredictOptions | None = None,
    verbose: str | int = "auto",
) -> Any:
    """Predicts with the average over posterior samples.

    Use this function in place of `model.predict` for probabilities or means
    together with their uncertainty. The function computes

        p(y | x) = 1/S sum_s p(y | x, w_s),   w_s drawn from the posterior (1)

    A posterior sample is one function for the whole data set. The forward pass
    is traced once for all samples. The function reads batched data once,
    part by part, and predicts each part with all samples. At most
    `options.stack_bytes` of samples are in memory at once, 1 GiB by default;
    only weights that differ between samples count. The model does not change,
    so several threads may predict with one model, also while another thread
    trains it.

    Each call draws the samples again. To predict many small batches with the
    same samples, use `keras_bdl.PosteriorPredictive`, which draws them once.

    Args:
        model: A Keras model. The compiled loss defines whether the outputs are
            logits, probabilities or means. Without such a loss, give `task`
            and `from_logits` in `options`.
        x: Arrays, data frames or sparse matrices (several inputs as a list or
            dictionary), a batched `tf.data.Dataset`, a
            `keras.utils.PyDataset` or a generator of batches. Labels that
            come with the batches of the last three kinds become
            `Prediction.y`. A model with a preprocessor, such as a task of
            KerasHub, takes raw inputs such as strings, as in its own
            `predict`. For inputs that are preprocessed already, set
            `model.preprocessor = None`.
        posterior: A `keras_bdl.extend.Posterior`. Defaults to `None`: the
            posterior of the compiled optimizer, the objective or the layers,
            or else the trained weights alone. `OGN` and `KFAC` train the
            weights without noise, so `None` predicts with these weights; pass
            `posterior=keras_bdl.posterior_of(model)` to use their posterior.
        samples: S, the number of posterior samples. Defaults to `None`: the
            number in `compile(samples=...)` if it is positive, or else every
            member of an `Ensemble` once, or else 30. Without a posterior, the
            trained weights are the only sample.
            `"auto"` draws 20 samples at a time, until the standard error of
            the mean is at most `options.tolerance` for every example and
            class, and 1000 at most. An `Ensemble` then counts every member
            once.
        seed: Selects the samples. Defaults to `0`.
        batch_size: Batch size for arrays. Defaults to `None`, 32.
        batch_norm_data: Training inputs, or `(inputs, labels)`. A sample
            without its own BatchNorm statistics gets statistics that are
            estimated on these inputs, as in
            `keras_bdl.prediction.reestimate_batch_norm`. Arrays are read in
            batches of 32; pass a `tf.data.Dataset` for another batch size.
            Defaults to `None`.
        keep_samples: Whether to keep the output of every sample in
            `Prediction.samples`. Defaults to `False`.
        on_batch: Function that gets the prediction of each batch in turn, such
            as the method `add` of `keras_bdl.evaluation.SegmentationScores`.
            Nothing else is kept, so memory does not grow with the data, and
            `predict` returns `None`. `noise_stddev` must then fit each batch.
            Defaults to `None`.
        options: A `keras_bdl.prediction.PredictOptions`: what the outputs mean
            if the loss does not say it, linearised networks and links, and
            tolerances. Defaults to `None`, the defaults of these options.
        verbose: `0` for silence, `1` for a progress bar, `2` for one line.
            Defaults to `"auto"`, `1`.

    Returns:
        A `ClassificationPrediction` or `RegressionPrediction`. A model with
        several outputs gives one for each output, in the same structure. With
        `on_batch`, `None`. The mask that layers pass on to an output becomes
        `Prediction.mask`, and the `ignore_class` of the compiled loss that of
        the prediction: reports and sets leave such entries out.

    Example:

    ```python
    prediction = keras_bdl.predict(model, x_test, posterior)
    prediction.mean, prediction.entropy, prediction.mutual_information
    ```
    """
    check_model(model)
    if options is None:
        options = DEFAULT_OPTIONS
    else:
        check_options(options)
    _check_keep_samples(keep_samples, samples, options.link)
    if on_batch is not None and not callable(on_batch):
        raise ValueError(
            "`on_batch` must be a function of a prediction, or `None`. "
            f"Received: on_batch={on_batch!r}"
        )
    x, batch_size = preprocessed(model, x, batch_size)
    batches = Batches(x, batch_size=batch_size, steps=options.steps, pad=True)
    chunks = batches.chunks(None if on_batch is None else _SMALL)
    first = next(chunks)
    _build(model, first)
    parts = itertools.chain([first], chunks)
    del first  # another reference would keep this large part in memory
    draws = chosen_draws(
        model,
        posterior,
        samples=samples,
        seed=seed,
        batch_norm_data=batch_norm_data,
        options=options,
    )
    total = batches.num_batches
    progress = keras.utils.Progbar(
        None if total is None or draws.in_steps else total * len(draws),
        verbose=check_verbose(verbose),
    )
    run = PredictionRun(draws, options, keep_samples, progress)
    with _lost_worker_explained(model):
        for chunk in parts:
            run.add(chunk)
            if on_batch is not None:
                for prediction in run.take():
                    on_batch(prediction)
    run.finish()
    if verbose == 2:
        print(f"keras_bdl.predict: {run.stacks}")
    return run.prediction() if on_batch is None else None


# Bytes of the inputs that are predicted before `on_batch` gets the result.
_SMALL = 2**24


def _check_keep_samples(
    keep_samples: bool, samples: Any, link: str | None
) -> None:
    check_bool("keep_samples", keep_samples)
    if samples == AUTO and keep_samples:
        raise ValueError(
            "`keep_samples` needs a number of `samples`: parts of the data "
            'may need different numbers with `samples="auto"`. '
            "Received: samples='auto', keep_samples=True"
        )
    if link in EXACT_LINKS and keep_samples:
        raise ValueError(
            f"`keep_samples` must be `False` with `link={link!r}`, which is a "
            f"closed form without samples. Received: link={link!r}, "
            "keep_samples=True"
        )


def _build(model: keras.Model, chunk: Iterable[Batch]) -> None:
    if model.built:
        return
    batch = next(iter(chunk))
    with TRACING, model.distribute_strategy.scope():
        if not model.built:
            model(keras.tree.map_structure(lambda x: x[:1], batch.inputs))


def _lost_worker_explained(model: keras.Model) -> Any:
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:  # so there is one worker
        return contextlib.nullcontext()
    return lost_worker_explained(strategy)


_CACHE = ModelCache()
# Number of results that may be pending when the next batch starts.
_IN_FLIGHT = 2


class PredictionRun:
    """Predicts each part of the data with each sample, and averages.

    Each batch and output has an average of its own, so the size of the data
    and of the outputs need not be known beforehand.
    """

    def __init__(
        self,
        draws: PosteriorDraws,
        options: PredictOptions,
        keep_samples: bool,
        progress: keras.utils.Progbar,
    ):
        self._draws = draws
        self.stacks = SampleStacks(draws, options.stack_bytes)
        self._options = options
        self._keep_samples = keep_samples
        self._progress = progress
        self._steps_done = 0
        self._average: NetworkAverage
        self._checks: list[OutputCheck] = []
        self._noises: list = []
        self._averages: list[list] = []
        self._labels: list[list] = []
        self._counts: list[int] = []
        self._taken = 0  # batches that `take` has returned

    def add(self, chunk: Iterable[Batch]) -> None:
        """Adds the outputs of all samples for one part of the data."""
        first = len(self._averages)
        done = 0
        for stack in self.stacks:
            forward = self._forward(stack)
            in_flight: collections.deque = collections.deque()
            for index, batch in enumerate(chunk, first):
                seeds = self._draws.seeds_of_batch(
                    stack.indices, self._taken + index
                )
                averages = forward(batch.inputs, seeds)
                in_flight.append((index, batch, averages, done, len(stack)))
                if len(in_flight) > _IN_FLIGHT:
                    self._collect(*in_flight.popleft())
            while in_flight:
                self._collect(*in_flight.popleft())
            for check in self._checks:
                check.finish_part()
            done += len(stack)
            del stack, forward  # before the next stack is drawn
            self._counts[first:] = [done] * (len(self._averages) - first)
            if self._is_exact_enough(first, done):
                break

    def _forward(self, stack: SampleStack) -> Callable:
        """Returns the traced average over the samples of a stack."""
        model = self._draws.model
        options = AverageOptions.of(
            self._options,
            linearized=self._draws.linearized,
            keep_samples=self._keep_samples,
            positions=stack.positions,
            drops=stack.drops,
            blocks=self._draws.layout,
            covered=self._draws.covered,
        )

        def make() -> Any:
            reference: Any = weakref.ref(model)
            average = NetworkAverage(
                reference,
                options,
                uses_xla=lambda: bool(reference().jit_compile),
            )
            return average, traced(model, average, sharded=True)

        average, function = _CACHE.get(model, options, make)
        fixed = average.fixed_values(stack.values)
        self._average = average

        def forward(inputs: Any, seeds: Any) -> Any:
            found = function(inputs, fixed, [*stack.stacked, *seeds])
            return [with_all_samples(one, len(stack)) for one in found]

        return forward

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

    def _predictions(self, batches: slice) -> Any:
        """Returns the prediction of some batches."""
        counts = self._counts[batches]
        predictions = [
            self._join(output, averages, counts, labels, noise)
            for output, averages, labels, noise in zip(
                self._average.outputs,
                zip(*self._averages[batches], strict=True),
                zip(*self._labels[batches], strict=True),
                self._noises,
                strict=True,
            )
        ]
        return keras.tree.pack_sequence_as(self._average.structure, predictions)

    def _collect(
        self, index: int, batch: Batch, averages: list, done: int, more: int
    ) -> None:
        """Adds the average over some samples for one batch."""
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

    def _begin(self) -> None:
        """Makes the check of each output, after the first forward pass."""
        outputs = self._average.outputs
        self._noises = self._per_output(
            "noise_stddev", self._options.noise_stddev
        )
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

    def _per_output(self, argument: str, value: Any) -> list:
        names = getattr(self._draws.model, "output_names", None)
        structure = self._average.structure
        return per_output(argument, value, structure, names=names)

    def _join(
        self,
        output: DescribedOutput,
        averages: Sequence,
        counts: list[int],
        labels: Sequence,
        noise_stddev: Any,
    ) -> Any:
        y = None if labels[0] is None else np.concatenate(labels)
        if output.likelihood.task == "regression":
            return RegressionAverage.join(averages, counts, y, noise_stddev)
        return ClassificationAverage.join(
            averages, counts, y, ignore_class=output.ignore_class
        )

    def _is_exact_enough(self, first: int, done: int) -> bool:
        """Returns whether the batches from `first` on need no more samples."""
        if not self._draws.in_steps or done % SAMPLES_OF_A_STEP:
            return False
        tolerance = self._options.tolerance
        largest = max(
            float(np.max(_counted(standard_error(average, done), average)))
            for averages in self._averages[first:]
            for average in averages
        )
        if largest > tolerance and done == len(self._draws):
            warnings.warn(
                f"{done} samples did not reach `tolerance`. Pass a larger "
                "`tolerance`, or a number of `samples`. Received: "
                f"tolerance={tolerance}, standard error={largest:.3g}",
                stacklevel=4,
            )
        return largest <= tolerance


def _counted(values: np.ndarray, average: dict[str, Any]) -> np.ndarray:
    """Returns values of an average, 0 where a mask leaves an entry out."""
    mask = average.get("mask")
    if mask is None:
        return values
    mask = np.reshape(mask, (*mask.shape, *[1] * (values.ndim - mask.ndim)))
    return np.where(mask, values, 0.0)
