"""Checks of arrays that hold the samples of several chains."""

import math
from collections.abc import Callable

import numpy as np

from keras_bdl._aliases import ArrayLike

MIN_SAMPLES = 4  # two in each half
# Largest number of entries in a block. A block needs a few times 8 MiB.
_BLOCK = 2**20


def check_chains(
    chains: ArrayLike, name: str = "chains", *, min_chains: int = 2
) -> np.ndarray:
    """Returns chains as an array of shape `(chains, samples, ...)`.

    Args:
        chains: Argument of the user.
        name: Name of the argument in errors. Defaults to `"chains"`.
        min_chains: Fewest chains allowed. Defaults to `2`.
    """
    try:
        array = np.asarray(chains)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.isbuiltin == 2:  # such as bfloat16
        array = array.astype("float32")
    if (
        array.dtype.kind not in "fiub"
        or array.ndim < 2
        or not array.size
        or array.shape[0] < min_chains
        or array.shape[1] < MIN_SAMPLES
    ):
        raise ValueError(
            f"`{name}` must be an array of numbers of shape (chains, samples, "
            f"...), with at least {min_chains} chains of equal length and at "
            f"least {MIN_SAMPLES} samples. Run more chains, each with its own "
            f"`seed`, or longer chains. Received: {_received(array)}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"`{name}` must be finite. Remove chains that diverged. "
            "Received: NaN or infinity in chain "
            f"{[c for c, x in enumerate(array) if not np.isfinite(x).all()]}"
        )
    return array


def is_constant(chains: np.ndarray) -> np.ndarray:
    """Returns a mask of the quantities that never vary in any chain."""
    return np.all(chains == chains[:1, :1], axis=(0, 1))


def for_each_quantity(
    statistic: Callable[[np.ndarray], np.ndarray], chains: np.ndarray
) -> np.ndarray:
    """Returns a statistic of every quantity, in the shape of one sample.

    Args:
        statistic: Function from float64 chains of shape
            `(chains, samples, k)` to `k` numbers.
        chains: Checked chains of shape `(chains, samples, ...)`.
    """
    shape = chains.shape[2:]
    flat = chains.reshape(*chains.shape[:2], -1)
    step = max(1, _BLOCK // math.prod(flat.shape[:2]))
    values = []
    for start in range(0, flat.shape[2], step):
        block = flat[..., start : start + step].astype("float64")
        _check_moves(block, start, shape)
        values.append(statistic(block))
    return np.concatenate(values).reshape(shape)[()]


def quantity(
    chains: np.ndarray, entry: int | tuple[int, ...] | None = None
) -> np.ndarray:
    """Returns one quantity of every chain, of shape `(chains, samples)`.

    Args:
        chains: Checked chains of shape `(chains, samples, ...)`.
        entry: Index into the axes after the first two, an integer or a tuple.
            Defaults to `None`: the chains have only one quantity.
    """
    shape = chains.shape[2:]
    if entry is None and math.prod(shape) == 1:
        return chains.reshape(chains.shape[:2])
    place = entry if isinstance(entry, tuple) else (entry,)
    try:
        one = np.empty(shape)[place].ndim == 0
    except (IndexError, TypeError):
        one = False
    if entry is None or not one:
        raise ValueError(
            "`entry` must be the index of one quantity, an integer or a tuple "
            f"of integers, in samples of shape {shape}. "
            f"Received: entry={entry!r}"
        )
    return chains[(slice(None), slice(None), *place)]


def _check_moves(block, start, shape):
    constant = np.flatnonzero(is_constant(block))
    if constant.size:
        place = np.unravel_index(start + constant[0], shape) if shape else ()
        raise ValueError(
            "`chains` must hold quantities that vary. A constant quantity "
            "contains no information about convergence. Remove it. Received: "
            f"quantity {tuple(map(int, place))}, "
            f"always {block[0, 0, constant[0]]:g}"
        )


def _received(array):
    if array.dtype.kind not in "fiub":
        return "rows of different lengths, or values that are no numbers"
    return f"chains of shape {array.shape}"
