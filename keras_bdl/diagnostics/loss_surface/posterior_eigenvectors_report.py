"""Report on the directions along which a posterior is widest."""

import dataclasses

import numpy as np

from keras_bdl.diagnostics.loss_surface.weight_vectors import as_arrays
from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True, eq=False)
class PosteriorEigenvectors(Report):
    """Eigenvalues and eigenvectors. Made by `posterior_eigenvectors`.

    `to_dict` leaves the vectors out, which are as long as the network is
    large.

    Attributes:
        part: `"low_rank"` or `"all"`, of which part of the covariance.
        rank: Number of columns of the posterior.
        size: Number of weights.
        values: The eigenvalues, variances, the largest first.
        trace: The variances of all weights, added up.
        vectors: Array `(count, size)` of unit vectors.
        shapes: Of the trainable variables.
    """

    part: str
    rank: int
    size: int
    values: list
    trace: float
    vectors: np.ndarray = dataclasses.field(repr=False)
    shapes: list = dataclasses.field(repr=False)

    def directions(self, *places: int) -> list:
        """Returns eigenvectors as lists of arrays, one for each variable.

        Args:
            *places: Which, counted from 0. None of them for all.
        """
        for place in places:
            if not 0 <= place < len(self.values):
                raise ValueError(
                    f"`places` must lie from 0 to {len(self.values) - 1}. "
                    f"Received: {place}"
                )
        return [
            as_arrays(self.vectors[i], self.shapes)
            for i in places or range(len(self.values))
        ]

    def to_dict(self) -> dict:
        """Returns the numbers as a dict of plain Python types."""
        names = ("part", "rank", "size", "values", "trace")
        return {name: getattr(self, name) for name in names}

    def title(self) -> str:
        """Returns the first line."""
        part = "low-rank part of the " if self.part == "low_rank" else ""
        return (
            f"Eigenvectors of the {part}covariance of {self.size} weights, "
            f"rank {self.rank}"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        rows = [["", "variance", "stddev", "of trace"]]
        for i, value in enumerate(self.values):
            share = value / self.trace if self.trace else float("nan")
            rows.append([str(i), value, max(value, 0.0) ** 0.5, share])
        return [("The largest first", rows)]
