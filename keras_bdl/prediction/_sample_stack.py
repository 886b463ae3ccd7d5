"""Posterior samples with all values of a variable in one array."""

import dataclasses
import itertools
import weakref
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_bdl._saving._state_file import LazyArray
from keras_bdl.prediction._average_options import EXACT_LINKS
from keras_bdl.prediction._posterior_draws import SAMPLES_OF_A_STEP
from keras_bdl.prediction._posterior_draws import PosteriorDraws

# Size in bytes of the samples that a prediction holds at once.
MEMORY = 2**30


@dataclasses.dataclass(frozen=True, eq=False)
class SampleStack:
    """Posterior samples, with the samples on the first axis of an array.

    Variables that are equal in all samples are stored once.

    Attributes:
        indices: Indices of the samples.
        positions: Positions in `model.variables` of the variables that differ
            between the samples, without seed generators.
        stacked: For each of `positions`, a tensor with all samples. Samples of
            the outputs (`link="monte_carlo"`) have a tensor with their keys.
            For linearised outputs, the samples minus the mean.
        values: For each of `model.variables`, a tensor: the value in the first
            sample. For linearised outputs, the mean of the posterior. With a
            link, the arrays of the `CovarianceBlocks` follow.
        drops: Whether dropout must be on.
    """

    indices: Sequence[int]
    positions: tuple[int, ...]
    stacked: list[tf.Tensor]
    values: list[tf.Tensor]
    drops: bool

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """Size of the stacked values in bytes."""
        return sum(_nbytes(tensor) for tensor in self.stacked)

    def nbytes_beside(self, model_values: list[tf.Tensor]) -> int:
        """Returns the size in bytes of all values that the model has not.

        Args:
            model_values: The values of the variables of the model.
        """
        own = {id(tensor) for tensor in model_values}
        return self.nbytes + sum(
            _nbytes(tensor) for tensor in self.values if id(tensor) not in own
        )

    @classmethod
    def of(cls, draws: PosteriorDraws, indices: Sequence[int]) -> "SampleStack":
        """Returns the samples with the given indices.

        Args:
            draws: The `PosteriorDraws`.
            indices: Indices of samples that agree in `draws.drops`.
        """
        if draws.link is not None:
            return cls._of_outputs(draws, indices)
        first = draws.values(indices[0])
        base = draws.mean_values() if draws.linearized else first
        stacked: dict[int, np.ndarray] = {}
        for row, index in enumerate(indices):
            values = first if row == 0 else draws.values(index)
            for i, value in enumerate(values):
                if i in stacked:
                    stacked[i][row] = value
                elif i not in draws.seed_states and _differ(value, base[i]):
                    array = np.empty(
                        (len(indices), *value.shape), _dtype(value)
                    )
                    array[:row], array[row] = base[i], value
                    stacked[i] = array
        if draws.linearized:
            for i, array in stacked.items():
                # Keeps its digits in half precision, unlike w itself.
                array -= base[i].numpy()
        positions = tuple(sorted(stacked))
        return cls(
            tuple(indices),
            positions,
            # Frees each array before the next tensor is made.
            [tf.convert_to_tensor(stacked.pop(i)) for i in positions],
            base,
            draws.drops(indices[0]),
        )

    @classmethod
    def _of_outputs(cls, draws, indices):
        """Returns samples of the outputs in place of samples of the weights."""
        keys = [
            np.array([draws.seeds[index]], "uint64").view("int32")
            for index in indices
        ]
        return cls(
            tuple(indices),
            (),
            [] if draws.link in EXACT_LINKS else [tf.stack(keys)],
            [
                *draws.mean_values(),
                *map(tf.convert_to_tensor, draws.arrays),
            ],
            False,
        )


class SampleStacks:
    """All samples of a prediction, in stacks that fit into `MEMORY`.

    If all samples fit at once, they are drawn once and kept for the next
    prediction. Otherwise each iteration draws them again.

    Args:
        draws: The `PosteriorDraws`.
    """

    def __init__(self, draws: PosteriorDraws):
        self._draws = draws
        kept = _KEPT.get(draws.model)
        self.reused = kept is not None and kept.fits(draws)
        self._kept = kept if kept is not None and self.reused else _Kept(draws)
        self._stacks_before = len(self._kept.stacks)
        self._groups_used = 0
        if draws.can_be_kept:
            _KEPT[draws.model] = self._kept

    def __iter__(self) -> Iterator[SampleStack]:
        kept = self._kept
        for number, group in enumerate(kept.groups):
            self._groups_used = max(self._groups_used, number + 1)
            stack = kept.stacks.get(number)
            if stack is None:
                stack = SampleStack.of(self._draws, group)
                size = stack.nbytes_beside(self._draws.model_values)
                if kept.nbytes + size <= MEMORY:
                    kept.stacks[number] = stack
                    kept.nbytes += size
            yield stack

    def __str__(self) -> str:
        groups = self._groups_used  # fewer than all with `samples="auto"`
        if groups <= self._stacks_before:
            how = "kept from the last call"
        elif all(number in self._kept.stacks for number in range(groups)):
            how = "drawn once"
        else:
            how = f"drawn again for each part of the data, in {groups} groups"
        samples = sum(map(len, self._kept.groups[:groups]))
        return f"{samples} samples, {how}"


class _Kept:
    """The samples of the last prediction, without references to the model."""

    def __init__(self, draws):
        self.groups = _groups(draws)
        self.stacks: dict[int, SampleStack] = {}
        self.nbytes = 0  # of the stacks
        self._content = draws.content()

    def fits(self, draws):
        """Returns whether the samples are those of `draws`."""
        return draws.can_be_kept and _equal(self._content, draws.content())


_KEPT: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _equal(one, other):
    """Compares nested lists and dictionaries of arrays and other values."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _equal(one[key], other[key]) for key in one
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, (np.ndarray, tf.Tensor)):
        return np.array_equal(one, other)
    return not isinstance(one, LazyArray) and one == other


def _groups(draws):
    """Returns the indices of the samples in each stack."""
    step = SAMPLES_OF_A_STEP if draws.in_steps else len(draws)
    with_and_without = [draws.indices(drops) for drops in (False, True)]
    largest = _largest_part(draws, min(step, len(draws)))
    return [
        part
        for start in range(0, len(draws), step)
        for indices in with_and_without
        for part in _parts(
            [i for i in indices if start <= i < start + step], largest
        )
    ]


def _parts(indices, size):
    """Yields parts of almost equal length, each of at most `size`."""
    count = -(-len(indices) // size)
    ends = [len(indices) * k // max(count, 1) for k in range(count + 1)]
    for start, end in itertools.pairwise(ends):
        yield indices[start:end]


def _largest_part(draws, wanted):
    """Returns the number of samples that fit into `MEMORY`, at least one."""
    if wanted * sum(map(_nbytes, draws.model_values)) <= MEMORY:
        return wanted
    size = _nbytes_of_one(draws, range(len(draws)))
    return min(wanted, max(1, MEMORY // max(1, size)))


def nbytes_of_samples(draws: PosteriorDraws) -> int:
    """Returns the size in bytes of all stacks of samples.

    Args:
        draws: The `PosteriorDraws`.
    """
    groups = (draws.indices(drops) for drops in (False, True))
    return sum(len(g) * _nbytes_of_one(draws, g) for g in groups if g)


def _nbytes_of_one(draws, indices):
    """Returns the size in bytes that a sample adds to a stack."""
    return SampleStack.of(draws, indices[:2]).nbytes // 2


def _nbytes(tensor):
    return tensor.shape.num_elements() * tensor.dtype.size


def _dtype(tensor):
    return tensor.dtype.as_numpy_dtype


def _differ(value, other):
    return value is not other and not np.array_equal(value, other)
