"""The directions along which a posterior is widest."""

import dataclasses

import numpy as np

from keras_bdl.data.checked_inputs import check_count
from keras_bdl.diagnostics.loss_surface.eigenpairs import eigenpairs
from keras_bdl.diagnostics.loss_surface.posterior_covariance import (
    PosteriorCovariance,
)
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


# Relative to the largest eigenvalue. Below, columns count as dependent.
_NEGLIGIBLE = 1e-12


def posterior_eigenvectors(
    posterior, count: int = 4, part: str = "low_rank"
) -> PosteriorEigenvectors:
    """Finds the leading eigenvectors of the covariance of SWAG.

    With the scale s, the variances v and the c columns of deviations D,

        S = s (diag(v) + D D' / (c - 1))                                  (1)

    The low-rank part alone has eigenvalues and eigenvectors that follow from
    a matrix of c rows and columns,

        s / (c - 1) D'D u = lambda u,   e = D u / |D u|                   (2)

    They are those that a randomised SVD of D approximates, here without an
    error, at the cost of two passes over D. Those of the whole of (1) are
    found by the Lanczos method, which needs a pass for each product. Neither
    forms the covariance or a second copy of D.

    Args:
        posterior: That of `keras_bdl.SWAG`, a `LowRankGaussian`, or a
            `Gaussian`, of which `part` must be `"all"`.
        count: How many. Defaults to `4`.
        part: `"low_rank"` for (2), as the figures of the paper have, or
            `"all"` for (1). Defaults to `"low_rank"`.

    Returns:
        A `PosteriorEigenvectors`, the largest eigenvalue first. The entry of
        each vector that is largest in magnitude is positive.

    Example:

    ```python
    axes = keras_bdl.diagnostics.posterior_eigenvectors(swag.posterior)
    print(axes)
    plane = keras_bdl.diagnostics.loss_plane(
        model,
        train,
        axes.directions(0, 1),
        distances=[-2, -1, 0, 1, 2],
        center=swag.posterior,
    )
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.3
    """
    check_count("count", count)
    if part not in ("low_rank", "all"):
        raise ValueError(
            f'`part` must be "low_rank" or "all". Received: part={part!r}'
        )
    covariance = PosteriorCovariance(posterior)
    _check_rank(covariance, count, part)
    if part == "all":
        values, vectors = eigenpairs(
            covariance.times, covariance.size, count, "LA"
        )
    else:
        values, vectors = _of_columns(covariance, count)
    largest = np.take_along_axis(
        vectors, np.abs(vectors).argmax(1, keepdims=True), 1
    )
    vectors = vectors * np.sign(largest)
    return PosteriorEigenvectors(
        part=part,
        rank=covariance.rank,
        size=covariance.size,
        values=values.tolist(),
        trace=float(covariance.trace),
        vectors=vectors,
        shapes=covariance.shapes,
    )


def _check_rank(covariance, count, part):
    if part == "low_rank" and not covariance.rank:
        raise ValueError(
            "`posterior` must have columns of deviations, or `part` be "
            '"all". Received: a diagonal posterior and part="low_rank"'
        )
    if count > covariance.size:
        raise ValueError(
            f"`count` must be at most {covariance.size}, the number of "
            f"weights. Received: count={count}"
        )


def _of_columns(covariance, count):
    found = []
    for place, gram in enumerate(covariance.grams()):
        values, factors = np.linalg.eigh(gram)
        found += [
            (value, place, factor)
            for value, factor in zip(values, factors.T, strict=True)
        ]
    found.sort(key=lambda one: -one[0])
    known = [one for one in found if one[0] > _NEGLIGIBLE * found[0][0]]
    if len(known) < count:
        raise ValueError(
            f"`count` must be at most {len(known)}, the rank of the low-rank "
            f"part. Received: count={count}"
        )
    vectors = [covariance.combination(*one[1:]) for one in known[:count]]
    vectors = [v / np.linalg.norm(v) for v in vectors]  # (2)
    return np.array([one[0] for one in known[:count]]), np.stack(vectors)
