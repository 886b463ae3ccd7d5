"""Order statistics of calibration scores."""

import dataclasses
import fractions
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Cutoff:
    """The largest score inside a set, from the scores of calibration data.

    With n calibration scores and the level a user asks for,

        k = ceil((n + 1) * level)                                         (1)
        value = the k-th smallest score, infinite if k > n                (2)

    A new score, exchangeable with the others, is at most (2) with probability
    k/(n + 1) if no two scores are equal, otherwise at least so. Equal scores
    are ordered by a second number, the key.

    The arrays have one entry for each group: for each class, for each target,
    or a single one without axes.

    Attributes:
        values: (2).
        keys: Key of the k-th score.
        counts: n.
        ranks: (1).
    """

    values: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    ranks: np.ndarray

    @classmethod
    def of(
        cls, scores: np.ndarray, level: float, keys: np.ndarray | None = None
    ) -> "Cutoff":
        """Returns the cutoff of one group.

        Args:
            scores: Scores of the calibration data.
            level: Share of new scores that must be at most the cutoff.
            keys: Order of equal scores. Defaults to `None`: equal scores are
                on one side of the cutoff.
        """
        count = len(scores)
        k = rank(count, level)
        value = key = math.inf
        if k <= count:
            if keys is None:
                value = float(np.partition(scores, k - 1)[k - 1])
            else:
                chosen = np.lexsort((keys, scores))[k - 1]
                value, key = float(scores[chosen]), float(keys[chosen])
        return cls(*map(np.asarray, (value, key, count, k)))

    @classmethod
    def joined(cls, cutoffs: list["Cutoff"], shape: tuple) -> "Cutoff":
        """Returns the cutoffs of several groups as one object.

        Args:
            cutoffs: One cutoff for each group.
            shape: Shape of the arrays.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(
            *(
                np.reshape([getattr(c, name) for c in cutoffs], shape)
                for name in names
            )
        )

    def limits(self, keys: np.ndarray) -> np.ndarray:
        """Returns the largest score inside the set, for rows with these keys.

        Args:
            keys: Key of each row.

        Returns:
            An array with one row per key, and one column per group.
        """
        values, own = np.ravel(self.values), np.ravel(self.keys)
        below = np.nextafter(values, -np.inf)
        return np.where(keys[:, None] <= own, values, below)

    @property
    def infinite(self) -> np.ndarray:
        """Whether a group has too few scores for its level."""
        return self.ranks > self.counts

    def get_state(self) -> dict[str, Any]:
        """Returns the arrays by name."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
        }


def rank(count: int, level: float) -> int:
    """Returns `ceil((count + 1) * level)`, for the decimal number `level`.

    The float 0.9 is above nine tenths. In floats, 0.9 of 10 could become more
    than 9, and the rank 10.

    Args:
        count: Number of calibration scores.
        level: A number in (0, 1).
    """
    return math.ceil((count + 1) * decimal(level))


def least_count(level: float) -> int:
    """Returns the smallest number of scores with a finite cutoff.

    Args:
        level: A number in (0, 1).
    """
    return math.ceil(decimal(level) / (1 - decimal(level)))


def decimal(number: float) -> fractions.Fraction:
    """Returns the decimal number that a float stands for.

    It has 12 digits at most: arithmetic such as `np.arange(0.5, 1, 0.05)`
    gives 0.9500000000000004, which stands for 0.95. A number that 12 digits
    cannot tell from an integer is taken as it is.

    Args:
        number: A finite float.
    """
    number = float(number)
    rounded = fractions.Fraction(f"{number:.12g}")
    if rounded.denominator == 1:
        return fractions.Fraction(repr(number))
    return rounded
