"""The posterior samples that a prediction averages, as weights of a network."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Sized
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Data
from keras_bdl._arguments import check_number
from keras_bdl._data._batches import Batches
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors._gaussian import layout_and_arrays
from keras_bdl.posteriors._held_posterior import held_posterior
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.posteriors._stacked import Stacked
from keras_bdl.posteriors._stacked import stacked_of
from keras_bdl.prediction._batch_norm import batch_norm_batches
from keras_bdl.prediction._batch_norm import batch_norm_statistics
from keras_bdl.prediction._batch_norm import warn_of_stale_statistics
from keras_bdl.prediction._links import check_link
from keras_bdl.prediction._options import EXACT_LINKS
from keras_bdl.prediction._options import PredictOptions
from keras_bdl.prediction._stateless_call import moved_on
from keras_bdl.prediction._stateless_call import seed_states
from keras_bdl.prediction._stateless_call import values_of
from keras_bdl.prediction._stateless_call import with_values

DEFAULT_SAMPLES = 30
# With `samples="auto"`: how many to draw before the error is computed again,
# and how many at most.
AUTO = "auto"
SAMPLES_OF_A_STEP = 20
MOST_SAMPLES = 1000
# A list of more seeds would fill the memory before anything is checked.
LARGEST = 1_000_000


class PosteriorDraws:
    """The values of a model's variables in each posterior sample.

    The model does not change. The object reads the weights of the model once,
    so a sample is one function for the whole data set, even while another
    thread trains the model. A sample may be computed several times: the same
    seed gives the same weights every time. BatchNorm statistics are estimated
    once for each sample and kept; if the network is linearised, once for the
    mean of the posterior.

    With a link, `layout` and `arrays` are those of the posterior covariance
    blocks, and `covered` has the positions in `model.variables` of
    the variables that the layout counts. `in_steps` says whether a prediction
    draws samples until its error is small enough.
    """

    def __init__(
        self,
        model: keras.Model,
        posterior: Posterior | None,
        *,
        samples: int | str | None,
        seed: int,
        batch_norm_batches: Batches | None = None,
        linearized: bool = False,
        link: str | None = None,
    ):
        self.model = model
        self.linearized = linearized
        self.link = link
        self.layout, self.arrays = _covariance(posterior, link)
        self.covered: tuple[int, ...] = ()
        self.posterior: Any = posterior
        if link in EXACT_LINKS:
            samples = 1
        self.seeds = _seeds(model, posterior, samples, seed)
        self.in_steps = samples == AUTO and len(self.seeds) == MOST_SAMPLES
        self._warn_of_one_sample(samples)
        self._batches = batch_norm_batches
        self._statistics: dict[int, list] = {}
        if posterior is not None:
            posterior.check(model)
            if link is not None:
                self.covered = _positions(model, posterior.variables(model))
            normed = any(map(_is_batch_norm, _keras.all_layers(model)))
            if normed and batch_norm_batches is None and self._moves_weights():
                warn_of_stale_statistics(
                    model,
                    f"`{type(posterior).__name__}`",
                    frozen=self._frozen(self.seeds[0]),
                    stacklevel=4,
                )
        self.model_values = values_of(model)
        self.seed_states = seed_states(model)

    def __len__(self) -> int:
        return len(self.seeds)

    def indices(self, drops: bool) -> list[int]:
        """Returns the indices of the samples with or without dropout."""
        return [i for i in range(len(self)) if self.drops(i) == drops]

    def drops(self, index: int) -> bool:
        """Returns whether dropout must be on for a sample."""
        return self.posterior is not None and self.posterior.drops(
            self.seeds[index]
        )

    def mean_values(self) -> list:
        """Returns the mean of the posterior, as `values` returns a sample."""
        return self._with_statistics_of_mean(self._means())

    def _means(self) -> list:
        if self.posterior is None:
            return self.model_values
        with self._values_at_the_start():
            assignments = self.posterior.mean_assignments(self.model)
        return with_values(self.model, self.model_values, assignments)

    def with_new_values(self, pairs: list) -> list:
        """Returns the values of the model with those that differ replaced."""
        place = {id(v): i for i, v in enumerate(self.model.variables)}
        own = self.model_values
        differing = [
            (v, value)
            for v, value in pairs
            if not np.array_equal(own[place[id(v)]], value)
        ]
        return with_values(self.model, own, differing)

    def _with_statistics_of_mean(self, values: list) -> list:
        if self._batches is None or not self._needs_batch_norm(self.seeds[0]):
            return values
        if not self._statistics:
            self._statistics[0] = batch_norm_statistics(
                self.model,
                self._batches,
                self._means(),
                self._frozen(self.seeds[0]),
            )
        return with_values(self.model, values, self._statistics[0])

    def stacked(self, indices: Sequence[int]) -> Stacked:
        """Returns samples with their BatchNorm statistics."""
        if self.posterior is None:
            found = Stacked([], [])
        else:
            # Variational layers compute a sample from their variables.
            seeds = [self.seeds[i] for i in indices]
            with self._values_at_the_start():
                found = self.posterior.stacked(
                    self.model, seeds, centered=self.linearized
                )
        if self._batches is None or self.linearized:
            return found
        new = self._new_statistics(found, indices, self._batches)
        own = {id(v) for v, _ in [*new.shared, *new.varying]}
        kept = [
            [pair for pair in pairs if id(pair[0]) not in own]
            for pairs in (found.shared, found.varying)
        ]
        return Stacked(kept[0] + new.shared, kept[1] + new.varying)

    def _new_statistics(
        self, samples: Stacked, indices: Sequence[int], batches: Batches
    ) -> Stacked:
        """Returns the BatchNorm statistics of samples, kept or estimated.

        Without a sample that needs new ones, the result is empty.
        """
        statistics: dict[int, list] = {}  # of each sample that needs them
        for row, index in enumerate(indices):
            if not self._needs_batch_norm(self.seeds[index]):
                continue
            if index not in self._statistics:
                values = samples.sample(row)
                self._statistics[index] = batch_norm_statistics(
                    self.model,
                    batches,
                    with_values(self.model, self.model_values, values),
                    self._frozen(self.seeds[index]),
                )
            statistics[row] = self._statistics[index]
        new = {id(v) for pairs in statistics.values() for v, _ in pairs}

        def of_sample(row: int) -> list:
            if row in statistics:
                return statistics[row]
            return [p for p in samples.sample(row) if id(p[0]) in new]

        rows = range(len(indices))
        each = ((row, of_sample(row)) for row in rows)
        with self._values_at_the_start():
            return stacked_of(each, len(rows))

    def _values_at_the_start(self) -> keras.StatelessScope:
        """Returns a scope in which the variables have `model_values`."""
        state = zip(self.model.variables, self.model_values, strict=True)
        return keras.StatelessScope(state)

    def seeds_of_batch(
        self, indices: Sequence[int], batch_index: int
    ) -> list[keras.KerasTensor]:
        """Returns the states of all seed generators for one batch.

        The samples are on the first axis.
        """
        if not self.seed_states:
            return []
        samples = []
        for index in indices:
            values = list(self.model_values)
            for i in self.seed_states:
                values[i] = moved_on(values[i], index, batch_index)
            if self.posterior is not None:
                assignments = self.posterior.batch_assignments(
                    self.model, self.seeds[index], batch_index
                )
                values = with_values(self.model, values, assignments)
            samples.append([values[i] for i in self.seed_states])
        return [ops.stack(states) for states in zip(*samples, strict=True)]

    def _needs_batch_norm(self, seed: Any) -> bool:
        return self.posterior is None or self.posterior.needs_batch_norm(seed)

    def _frozen(self, seed: Any) -> list | None:
        """Returns the variables that were frozen in training, or `None`."""
        posterior = self.posterior
        if isinstance(posterior, Mixture):
            posterior = posterior.component(seed)
        return posterior and posterior.frozen_variables(self.model)

    def _moves_weights(self) -> bool:
        return not self.posterior.trained_under_draws and any(
            self.posterior.needs_batch_norm(seed) for seed in self.seeds
        )

    def _warn_of_one_sample(self, samples: Any) -> None:
        if self.posterior is None and samples not in (None, 1, AUTO):
            warnings.warn(
                "This model has no posterior, so `samples` has no effect: "
                "the trained weights are the only sample. Give a "
                "`posterior`, or leave `samples` out. "
                f"Received: samples={samples}, posterior=None",
                stacklevel=5,
            )


def _covariance(posterior: Any, link: str | None) -> tuple[tuple, list]:
    """Returns layout and arrays of the blocks that a link needs."""
    if link is None:
        return (), []
    blocks = posterior.covariance_blocks()
    if blocks is None:
        raise ValueError(
            "`link` needs a posterior of independent weights or of Kronecker "
            "factors, such as `Laplace`, `Gaussian`, `MatrixNormal`, or "
            "mean-field layers. Leave `link` out. "
            f"Received: link={link!r}, posterior={posterior}"
        )
    return layout_and_arrays(blocks)


def _is_batch_norm(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, keras.layers.BatchNormalization)


def _positions(model: keras.Model, variables: list) -> tuple[int, ...]:
    position = {id(v): i for i, v in enumerate(model.variables)}
    return tuple(position[id(v)] for v in variables)


def _seeds(
    model: keras.Model, posterior: Any, samples: Any, seed: int
) -> Sequence[Any]:
    if samples not in (None, AUTO):
        check_number(
            "samples", samples, at_least=1, at_most=LARGEST, integer=True
        )
    if posterior is None:
        return [None]
    if samples == AUTO:
        finite = isinstance(posterior, Sized)
        return posterior.seeds(seed, len(posterior) if finite else MOST_SAMPLES)
    # A model of the user may have another attribute `samples`.
    if samples is None and hasattr(model, "train_samples"):
        samples = model.samples or None
    if samples is None:
        # Only a finite posterior, such as an `Ensemble`, has a length.
        finite = isinstance(posterior, Sized)
        samples = len(posterior) if finite else DEFAULT_SAMPLES
    return posterior.seeds(seed, samples)


def chosen_draws(
    model: keras.Model,
    posterior: Posterior | None,
    *,
    samples: Any,
    seed: int,
    batch_norm_data: Data | None,
    options: PredictOptions,
) -> PosteriorDraws:
    """Returns the samples that the arguments of `keras_bdl.predict` choose."""
    batches = None
    if batch_norm_data is not None or options.batch_norm_fraction != 1.0:
        batches = batch_norm_batches(
            model,
            batch_norm_data,
            options.batch_norm_fraction,
            # No batch size: the statistics depend on it, so it does not follow
            # that of the inputs.
            batch_size=None,
            prefix="batch_norm_",
        )
    posterior = _found(model, posterior)
    linearized = _is_linearized(posterior, options.linearized)
    if options.link is not None:
        check_link(options.link, linearized=linearized, samples=samples)
    return PosteriorDraws(
        model,
        posterior,
        samples=samples,
        seed=seed,
        batch_norm_batches=batches,
        linearized=linearized,
        link=options.link,
    )


def _found(model: keras.Model, posterior: Any) -> Posterior | None:
    """Returns the posterior to use, or `None` for the trained weights.

    If an optimizer trained the model without noise, `None` selects the trained
    weights: training has not used samples of the posterior.
    """
    if posterior is None:
        return held_posterior(model, trained_with_noise=True)
    if not isinstance(posterior, Posterior):
        raise ValueError(
            "`posterior` must be a `keras_bdl.extend.Posterior`, such as "
            "the `posterior` attribute of a callback, or `None`. "
            f"Received: posterior={posterior!r} of type "
            f"{type(posterior).__name__}"
        )
    return posterior


def _is_linearized(posterior: Any, linearized: bool | None) -> bool:
    """Returns whether the network is linear in its weights."""
    if linearized is None:
        if isinstance(posterior, Mixture) and any(
            c.linearized_by_default for c in posterior.components
        ):
            warnings.warn(
                "A mixture is not linearised, and a component is a `Laplace`, "
                "whose samples of all weights predict badly in the network "
                "itself. Predict with each component, and average the "
                "predictions. Pass `linearized=False` to silence this. "
                f"Received: posterior={posterior}",
                stacklevel=4,
            )
        return posterior is not None and posterior.linearized_by_default
    if linearized and (posterior is None or not posterior.can_be_linearized):
        raise ValueError(
            "`linearized=True` needs a posterior with a mean, such as "
            "`Laplace` or `Gaussian`. An ensemble, a mixture and MC dropout "
            "have none around which a network is linear. "
            f"Received: posterior={posterior}"
        )
    return linearized


@dataclasses.dataclass(frozen=True, eq=False)
class SampleStack:
    """Posterior samples, with the samples on the first axis of an array.

    Variables that are equal in all samples are stored once, in `values`: for
    each of `model.variables` the value in the first sample. For linearised
    outputs, `values` has the mean of the posterior, and `stacked` the samples
    minus the mean. With a link, the arrays of the covariance follow in
    `values`, and `link="monte_carlo"` has the keys of its samples in `stacked`.
    """

    indices: Sequence[int]
    positions: tuple[int, ...]  # in `model.variables`, of what differs
    stacked: list[keras.KerasTensor]  # one for each of `positions`
    values: list[keras.KerasTensor]
    drops: bool  # whether dropout must be on

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """Size of the stacked values in bytes."""
        return sum(_nbytes(tensor) for tensor in self.stacked)

    def nbytes_beside(self, model_values: list[keras.KerasTensor]) -> int:
        """Returns the size in bytes of all values that the model has not."""
        own = {id(tensor) for tensor in model_values}
        return self.nbytes + sum(
            _nbytes(tensor) for tensor in self.values if id(tensor) not in own
        )

    @classmethod
    def of(cls, draws: PosteriorDraws, indices: Sequence[int]) -> "SampleStack":
        """Returns the samples with the given indices."""
        if draws.link is not None:
            return cls._of_outputs(draws, indices)
        found = draws.stacked(indices)
        if draws.linearized:
            values = draws.mean_values()
        else:
            values = draws.with_new_values(found.shared)
        place = {id(v): i for i, v in enumerate(draws.model.variables)}
        stacked = {place[id(v)]: tensor for v, tensor in found.varying}
        for i in draws.seed_states:  # they have values for each batch
            stacked.pop(i, None)
        positions = tuple(sorted(stacked))
        return cls(
            tuple(indices),
            positions,
            [stacked[i] for i in positions],
            values,
            draws.drops(indices[0]),
        )

    @classmethod
    def _of_outputs(
        cls, draws: PosteriorDraws, indices: Sequence[int]
    ) -> "SampleStack":
        """Returns samples of the outputs in place of samples of the weights."""
        keys = [
            np.array([draws.seeds[index]], "uint64").view("int32")
            for index in indices
        ]
        return cls(
            tuple(indices),
            (),
            [] if draws.link in EXACT_LINKS else [ops.stack(keys)],
            [
                *draws.mean_values(),
                *map(ops.convert_to_tensor, draws.arrays),
            ],
            False,
        )


class SampleStacks:
    """All samples of a prediction, in stacks of at most some size in bytes.

    If all samples fit at once, they are drawn once for all parts of the data.
    Otherwise each iteration draws them again.
    """

    def __init__(self, draws: PosteriorDraws, nbytes: int):
        self._draws = draws
        self._most = nbytes
        self._groups = _groups(draws, nbytes)
        self._kept: dict[int, SampleStack] = {}
        self._nbytes = 0  # of the kept stacks
        self._groups_used = 0

    def __iter__(self) -> Iterator[SampleStack]:
        for number, group in enumerate(self._groups):
            self._groups_used = max(self._groups_used, number + 1)
            stack = self._kept.get(number)
            if stack is None:
                stack = SampleStack.of(self._draws, group)
                size = stack.nbytes_beside(self._draws.model_values)
                # The next stack, about as large, needs room beside the kept.
                last = number == len(self._groups) - 1
                if self._nbytes + (1 if last else 2) * size <= self._most:
                    self._kept[number] = stack
                    self._nbytes += size
            yield stack
            del stack  # before the next one is drawn

    def __str__(self) -> str:
        groups = self._groups_used  # fewer than all with `samples="auto"`
        how = "drawn once"
        if not all(number in self._kept for number in range(groups)):
            how = f"drawn again for each part of the data, in {groups} groups"
        return f"{sum(map(len, self._groups[:groups]))} samples, {how}"


def _groups(draws: PosteriorDraws, nbytes: int) -> list[list[int]]:
    """Returns the indices of the samples in each stack."""
    step = SAMPLES_OF_A_STEP if draws.in_steps else len(draws)
    with_and_without = [draws.indices(drops) for drops in (False, True)]
    largest = _largest_part(draws, min(step, len(draws)), nbytes)
    return [
        part
        for start in range(0, len(draws), step)
        for indices in with_and_without
        for part in _parts(
            [i for i in indices if start <= i < start + step], largest
        )
    ]


def _parts(indices: list[int], size: int) -> Iterator[list[int]]:
    """Yields parts of almost equal length, each of at most `size`."""
    count = -(-len(indices) // size)
    ends = [len(indices) * k // max(count, 1) for k in range(count + 1)]
    for start, end in itertools.pairwise(ends):
        yield indices[start:end]


def _largest_part(draws: PosteriorDraws, wanted: int, nbytes: int) -> int:
    """Returns how many samples have at most this size, at least one."""
    size = sum(map(_nbytes, draws.model_values))
    if wanted * size <= nbytes:
        return wanted
    # The other samples of a mixture may vary more weights than the first two.
    if not isinstance(draws.posterior, Mixture):
        size = _nbytes_of_one(draws, range(len(draws)))
    return min(wanted, max(1, nbytes // max(1, size)))


def nbytes_of_samples(draws: PosteriorDraws) -> int:
    """Returns the size in bytes of all stacks of samples."""
    groups = (draws.indices(drops) for drops in (False, True))
    return sum(len(g) * _nbytes_of_one(draws, g) for g in groups if g)


def _nbytes_of_one(draws: PosteriorDraws, indices: Sequence[int]) -> int:
    """Returns the size in bytes that a sample adds to a stack."""
    return SampleStack.of(draws, indices[:2]).nbytes // 2


def _nbytes(tensor: Any) -> int:
    return math.prod(tensor.shape) * _dtype(tensor).itemsize


def _dtype(tensor: Any) -> np.dtype:
    return np.dtype(keras.backend.standardize_dtype(tensor.dtype))
