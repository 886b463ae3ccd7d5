"""Several samples of the weights, with the samples on the first axis."""

import concurrent.futures
import dataclasses
import math
import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._backend import adopted

# Of memory that a tensor takes over without a copy.
_ALIGNMENT = 64
# Fewer numbers are drawn in one thread.
_FEWEST = 2**18


@dataclasses.dataclass(frozen=True)
class Stacked:
    """Samples of the variables of a model.

    Attributes:
        shared: Pairs of a variable and the value that all samples have.
        varying: Pairs of a variable and a tensor with the values of all
            samples, of shape `(samples, *variable.shape)`.
    """

    shared: list[tuple[Any, Any]]
    varying: list[tuple[Any, Any]]

    def sample(self, row: int) -> list[tuple[Any, Any]]:
        """Returns one sample, as `Posterior.assignments` returns it."""
        # NumPy reads a row on a CPU without a copy.
        own = [(v, np.asarray(values)[row]) for v, values in self.varying]
        return [*self.shared, *own]


def stacked_of(
    samples: Iterable[tuple[int, list[tuple[Any, Any]]]],
    count: int,
    centers: Mapping[int, Any] | None = None,
) -> Stacked:
    """Returns samples that come one after the other, in any order.

    Only one sample and the result are in memory. A variable that a sample
    leaves out has the value of the model in this sample.

    Args:
        samples: Pairs of an index and the result of `Posterior.assignments`.
        count: Number of samples.
        centers: If given, what to subtract: a value for the `id` of a variable,
            by default that of the model.
    """
    variables: dict[int, Any] = {}
    first: dict[int, Any] = {}
    stacks: dict[int, np.ndarray] = {}
    started = False
    for row, pairs in samples:
        given = {id(v): value for v, value in pairs}
        for variable, _ in pairs:
            if id(variable) not in variables:
                variables[id(variable)] = variable
                # Earlier samples have left this variable out.
                first[id(variable)] = (
                    _own(variable) if started else given[id(variable)]
                )
        started = True
        for key, variable in variables.items():
            value = given[key] if key in given else _own(variable)
            if key not in stacks and _differ(value, first[key]):
                stacks[key] = aligned_empty(
                    (count, *variable.shape),
                    np.dtype(keras.backend.standardize_dtype(variable.dtype)),
                )
                stacks[key][...] = _array(first[key])
            if key in stacks:
                stacks[key][row] = _array(value)
    if centers is not None:
        for key, stack in stacks.items():
            stack -= _array(centers.get(key, variables[key]))
    return Stacked(
        [(v, first[key]) for key, v in variables.items() if key not in stacks],
        [
            (v, adopted(stacks.pop(key)))
            for key, v in variables.items()
            if key in stacks
        ],
    )


def aligned_empty(shape: tuple, dtype: Any) -> np.ndarray:
    """Returns an array whose memory `adopted` takes over."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, "uint8")
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def in_threads(fill: Callable[[slice], None], count: int, numbers: int) -> None:
    """Calls a function of the indices of some samples, for all samples.

    The generators of NumPy leave the other threads running.

    Args:
        fill: Function of a slice of samples.
        count: Number of samples.
        numbers: How many numbers all samples have.
    """
    threads = min(count, os.cpu_count() or 1) if numbers >= _FEWEST else 1
    ends = [count * k // threads for k in range(threads + 1)]
    parts = [slice(*ends[k : k + 2]) for k in range(threads)]
    if threads == 1:
        fill(parts[0])
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, parts))


def _own(variable: Any) -> Any:
    """Returns the value in the model now, or in a `StatelessScope`."""
    return ops.convert_to_tensor(variable)


def _array(value: Any) -> np.ndarray:
    return np.asarray(ops.convert_to_numpy(value))


def _differ(value: Any, other: Any) -> bool:
    return value is not other and not np.array_equal(
        _array(value), _array(other)
    )
