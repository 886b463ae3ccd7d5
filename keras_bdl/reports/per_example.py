"""Scores of single examples, which a report keeps for paired comparisons."""

import dataclasses
import zlib

import numpy as np

# 4 MiB for each score.
MOST_KEPT = 2**20


@dataclasses.dataclass(frozen=True)
class PerExample:
    """Scores of single test examples as float32 arrays.

    Of more than 1,048,576 examples, every second, third, ... is kept, so that
    a report stays small.

    Attributes:
        checksum: A number that differs between sets of labels. With equal
            numbers, two reports are taken to be about the same examples.
        scores: Dict from a name to one score for each kept example.
    """

    checksum: int
    scores: dict[str, np.ndarray]

    @classmethod
    def of(cls, y: np.ndarray, **scores: np.ndarray) -> "PerExample":
        """Returns the scores that are kept.

        Args:
            y: Labels or targets of all examples.
            **scores: One score for each example, by name.
        """
        y = np.ravel(y)
        kept = slice(None, None, -(-y.size // MOST_KEPT))
        return cls(
            zlib.crc32(y.tobytes()),
            {
                name: np.ravel(values)[kept].astype("float32")
                for name, values in scores.items()
            },
        )
