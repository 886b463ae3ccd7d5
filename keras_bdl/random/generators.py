"""Random numbers that are a function of integers."""

import numpy as np


def generator(seed: int, *stream: int):
    """Returns a NumPy generator for draw `seed`.

    Args:
        seed: Selects the draw; any integer from 0 on.
        stream: Integers that tell the uses within a draw apart.
    """
    return np.random.default_rng(sequence(seed, *stream))


def sequence(seed: int, *stream: int):
    """Returns the `numpy.random.SeedSequence` behind `generator`."""
    integer = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not integer or seed < 0:
        raise ValueError(
            f"`seed` must be an integer from 0 on. Received: seed={seed!r}"
        )
    return np.random.SeedSequence(int(seed), spawn_key=stream)
