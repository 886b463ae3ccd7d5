"""The directions in which a posterior has the largest variance."""

import dataclasses

import numpy as np

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._reports import Report
from keras_bdl.diagnostics._loss_surface._eigenpairs import eigenpairs
from keras_bdl.diagnostics._loss_surface._posterior_covariance import (
    PosteriorCovariance,
)
from keras_bdl.diagnostics._loss_surface._weight_vectors import as_arrays
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian


@dataclasses.dataclass(frozen=True, eq=False)
class PosteriorEigenvectorsReport(Report):
    """Eigenvalues and eigenvectors, made by `posterior_eigenvectors`.

    `to_dict` leaves the vectors out, because each vector has an entry for each
    weight of the network.

    Attributes:
        part: Part of the covariance, `"low_rank"` or `"all"`.
        rank: Number of columns of the posterior.
        size: Number of weights.
        values: The eigenvalues, which are variances, the largest first.
        trace: Sum of the variances of all weights.
        vectors: Array `(count, size)` of unit vectors.
        shapes: Shapes of the trainable variables.
    """

    part: str
    rank: int
    size: int
    values: list
    trace: float
    vectors: np.ndarray = dataclasses.field(repr=False)
    shapes: list = dataclasses.field(repr=False)

    def directions(self, *places: int) -> list:
        """Returns eigenvectors as lists of arrays, one array per variable.

        Args:
            *places: Indices of the eigenvectors, counted from 0. Without
                indices, the method returns all eigenvectors.
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
        """Returns the first line of the printed report."""
        part = "low-rank part of the " if self.part == "low_rank" else ""
        return (
            f"Eigenvectors of the {part}covariance of {self.size} weights, "
            f"rank {self.rank}"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        rows: list[list] = [["", "variance", "stddev", "of trace"]]
        for i, value in enumerate(self.values):
            share = value / self.trace if self.trace else float("nan")
            rows.append([str(i), value, max(value, 0.0) ** 0.5, share])
        return [("The largest first", rows)]


# Eigenvalues below this share of the largest one count as zero: the columns are
# then linearly dependent.
_NEGLIGIBLE = 1e-12


def posterior_eigenvectors(
    posterior: Gaussian | LowRankGaussian,
    *,
    count: int = 4,
    part: str = "low_rank",
) -> PosteriorEigenvectorsReport:
    """Returns the leading eigenvectors of the covariance of a posterior.

    Use them as directions of `loss_cross_section` and `loss_plane`. Let s be
    the scale, v the variances, and D the matrix of deviations, with c columns.
    The covariance of `keras_bdl.SWAG` is

        S = s (diag(v) + D D' / (c - 1))                                  (1)

    The eigenvalues and eigenvectors of the low-rank part follow from a matrix
    of c rows and columns,

        s / (c - 1) D'D u = lambda u,   e = D u / |D u|                   (2)

    A randomised SVD of D would approximate the eigenvectors. (2) is exact, and
    the function reads D once for the matrix and once for each eigenvector. The
    Lanczos method finds the eigenvectors of the whole covariance (1), and reads
    D for each product with a vector. Neither method computes the covariance as
    a matrix or copies D.

    Args:
        posterior: A `LowRankGaussian`, such as the one of `keras_bdl.SWAG`, or
            a `Gaussian`, which needs `part="all"`.
        count: Number of eigenvectors. Defaults to `4`.
        part: `"low_rank"` for (2), as in the figures of the paper, or `"all"`
            for (1). Defaults to `"low_rank"`.

    Returns:
        A `PosteriorEigenvectorsReport`, the largest eigenvalue first. The
        entry of each vector that is largest in magnitude is positive.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=0, rank=3)
    model.fit(x, y, epochs=5, callbacks=[swag])
    axes = keras_bdl.diagnostics.posterior_eigenvectors(
        swag.posterior, count=2
    )
    print(axes)
    first, second = axes.directions(0, 1)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.3
    """
    check_count("count", count)
    check_choice("part", part, ("low_rank", "all"))
    covariance = PosteriorCovariance(posterior)
    _check_rank(covariance, count, part)
    if part == "all":
        values, vectors = eigenpairs(
            covariance.times, size=covariance.size, count=count, which="LA"
        )
    else:
        values, vectors = _of_columns(covariance, count)
    largest = np.take_along_axis(
        vectors, np.abs(vectors).argmax(1, keepdims=True), 1
    )
    vectors = vectors * np.sign(largest)
    return PosteriorEigenvectorsReport(
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
            '`part="low_rank"` needs a posterior with columns of deviations. '
            'Use `part="all"` for a diagonal posterior. '
            'Received: a diagonal posterior and part="low_rank"'
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
