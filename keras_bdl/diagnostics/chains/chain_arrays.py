"""Arrays of the draws of several chains, checked where they enter."""

import math

import numpy as np

MIN_DRAWS = 4  # two in each half
# How many numbers are worked on at once, a few times 8 MiB.
_BLOCK = 2**20


def check_chains(chains, name: str = "chains", min_chains: int = 2):
    """Returns chains as an array, `(chains, draws, ...)`.

    Args:
        chains: What the user gave.
        name: What error messages call it. Defaults to `"chains"`.
        min_chains: How many there have to be. Defaults to `2`.
    """
    try:
        array = np.asarray(chains)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.isbuiltin == 2:  # bfloat16 and the like
        array = array.astype("float32")
    if (
        array.dtype.kind not in "fiub"
        or array.ndim < 2
        or not array.size
        or array.shape[0] < min_chains
        or array.shape[1] < MIN_DRAWS
    ):
        raise ValueError(
            f"`{name}` must be an array of numbers of shape (chains, draws, "
            f"...), with at least {min_chains} chains, all of one length, of "
            f"at least {MIN_DRAWS} draws. Sample more chains, each with a "
            f"`seed` of its own, or longer ones. Received: {_received(array)}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"`{name}` must be finite. Leave out chains that diverged. "
            "Received: NaN or infinity in chain "
            f"{[c for c, x in enumerate(array) if not np.isfinite(x).all()]}"
        )
    return array


def is_constant(chains):
    """Tells which quantities are the same in every draw of every chain."""
    return np.all(chains == chains[:1, :1], axis=(0, 1))


def for_each_quantity(statistic, chains):
    """Returns a statistic of every quantity, with the shape of one draw.

    Args:
        statistic: Function from float64 chains, `(chains, draws, k)`, to `k`
            numbers.
        chains: Checked chains, `(chains, draws, ...)`.
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


def quantity(chains, entry=None):
    """Returns one quantity of every chain, `(chains, draws)`.

    Args:
        chains: Checked chains, `(chains, draws, ...)`.
        entry: Its place behind the first two axes, an integer or a tuple.
            Defaults to `None`: there is but one.
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
            "`entry` must be the index of one of the quantities, which have "
            f"the shape {shape} in a draw: an integer or a tuple of them. "
            f"Received: entry={entry!r}"
        )
    return chains[(slice(None), slice(None), *place)]


def _check_moves(block, start, shape):
    constant = np.flatnonzero(is_constant(block))
    if constant.size:
        place = np.unravel_index(start + constant[0], shape) if shape else ()
        raise ValueError(
            "`chains` must be of quantities that vary. One that is the same "
            "in every draw of every chain says nothing about convergence: "
            f"leave it out. Received: quantity {tuple(map(int, place))}, "
            f"always {block[0, 0, constant[0]]:g}"
        )


def _received(array):
    if array.dtype.kind not in "fiub":
        return "rows of different lengths, or no numbers"
    return f"chains of shape {array.shape}"
