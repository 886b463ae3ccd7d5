"""The covariance of a posterior: its eigenvectors and its projections."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._reports import NOT_A_NUMBER
from keras_bdl._reports import Report
from keras_bdl.diagnostics._weight_vectors import as_arrays
from keras_bdl.diagnostics._weight_vectors import as_vector
from keras_bdl.diagnostics._weight_vectors import eigenpairs
from keras_bdl.diagnostics._weight_vectors import unit_vectors
from keras_bdl.posteriors._gaussian import BLOCK
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian


class PosteriorCovariance:
    """The covariance of a `Gaussian` or `LowRankGaussian`.

        S = s (diag(v) + D D' / (c - 1))                                  (1)

    with the scale s, the variances v and the c columns of D. If the posterior
    has `block=True`, D D' is zero between different variables.
    """

    def __init__(self, posterior: Gaussian | LowRankGaussian) -> None:
        # Subclasses have other covariances.
        if type(posterior) not in (Gaussian, LowRankGaussian):
            raise ValueError(
                "`posterior` must be a `keras_bdl.posteriors.LowRankGaussian`, "
                "such as the one of `keras_bdl.SWAG`, or a `Gaussian`. "
                f"Received: posterior of type {type(posterior).__name__}"
            )
        state = posterior.get_state()
        self.shapes = [m.shape for m in state["mean"]]
        self.size = sum(math.prod(shape) for shape in self.shapes)
        self.rank = getattr(posterior, "rank", 0)
        self._scale = state["scale"]
        self._variances = state["variance"] or [None] * len(self.shapes)
        self._columns = [
            d.reshape(self.rank, -1) for d in (state.get("deviations") or [])
        ]
        self._block = state.get("block", False)

    @property
    def trace(self) -> Any:
        """Sum of the variances of all weights."""
        return self._scale * sum(
            np.sum(v, dtype="float64") for v in self._variances if v is not None
        ) + sum(np.trace(gram) for gram in self.grams())

    def times(self, vector: np.ndarray) -> np.ndarray:
        """Returns (1) times a vector of float64."""
        product = np.zeros(self.size)
        start = 0
        for variance, shape in zip(self._variances, self.shapes, strict=True):
            part = slice(start, start + math.prod(shape))
            if variance is not None:
                product[part] = self._scale * variance.ravel() * vector[part]
            start = part.stop
        factor = self._scale / max(self.rank - 1, 1)
        for group in self._groups():
            z = np.zeros(self.rank)
            for part, columns in self._pieces(group):
                z += columns @ vector[part]
            for part, columns in self._pieces(group):
                product[part] += factor * (z @ columns)  # (1)
        return product

    def grams(self) -> list[np.ndarray]:
        """Returns `[s D' D / (c - 1)]`, or one matrix per variable if `block`.

        The nonzero eigenvalues of these matrices are those of the low-rank part
        of (1).
        """
        grams = []
        for group in self._groups():
            gram = np.zeros((self.rank, self.rank))
            for _, columns in self._pieces(group):
                gram += columns @ columns.T
            grams.append(gram * self._scale / (self.rank - 1))
        return grams

    def combination(self, place: int, factors: np.ndarray) -> np.ndarray:
        """Returns a linear combination of the columns of D."""
        vector = np.zeros(self.size)
        for part, columns in self._pieces(self._groups()[place]):
            vector[part] = factors @ columns
        return vector

    def _groups(self) -> Any:
        if not self._columns:
            return []
        places = range(len(self._columns))
        return [[i] for i in places] if self._block else [places]

    def _pieces(self, group: Any) -> Iterator[Any]:
        """Yields slices of the weights and the columns there, in float64."""
        starts = np.cumsum([0, *(math.prod(shape) for shape in self.shapes)])
        for i in group:
            columns = self._columns[i]
            for begin in range(0, columns.shape[1], BLOCK):
                piece = columns[:, begin : begin + BLOCK].astype("float64")
                first = starts[i] + begin
                yield slice(first, first + piece.shape[1]), piece


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
    vectors: np.ndarray = dataclasses.field(repr=False, metadata=NOT_A_NUMBER)
    shapes: list = dataclasses.field(repr=False, metadata=NOT_A_NUMBER)

    def directions(self, *places: int) -> list:
        """Returns eigenvectors, all or at `places`, as lists of arrays."""
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

    def title(self) -> str:
        part = "low-rank part of the " if self.part == "low_rank" else ""
        return (
            f"Eigenvectors of the {part}covariance of {self.size} weights, "
            f"rank {self.rank}"
        )

    def sections(self) -> list:
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


def _check_rank(covariance: Any, count: int, part: str) -> None:
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


def _of_columns(covariance: Any, count: int) -> Any:
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


def projected_covariance(
    posterior: Gaussian | LowRankGaussian, directions: Any
) -> np.ndarray:
    """Returns the covariance of the projections of weights on directions.

    Use it to draw the posterior on a plane. For w sampled from the posterior
    with covariance S, and unit vectors e_i,

        cov(e_i'w, e_j'w) = e_i' S e_j                                    (1)

    Along an eigenvector of S, the variance is the eigenvalue. Along an
    eigenvector of the low-rank part, the variance is the eigenvalue plus the
    variance of the diagonal part.

    Args:
        posterior: A `LowRankGaussian`, such as the one of `keras_bdl.SWAG`, or
            a `Gaussian`.
        directions: List of directions, each a list of arrays in the shapes of
            the trainable variables, or a vector. The function scales the
            directions to unit length.

    Returns:
        Array of float64 with a row and a column for each direction.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=0)
    model.fit(x, y, epochs=4, callbacks=[swag], verbose=0)
    direction = [np.ones(v.shape) for v in model.trainable_variables]
    keras_bdl.diagnostics.projected_covariance(swag.posterior, [direction])
    ```
    """
    covariance = PosteriorCovariance(posterior)
    units = unit_vectors(directions, covariance.shapes)
    products = np.stack([covariance.times(unit) for unit in units])
    matrix = products @ units.T  # (1)
    return (matrix + matrix.T) / 2


def project_weights(weights: list, directions: Any, center: Any) -> np.ndarray:
    """Returns the coordinates of networks along given directions.

    Use it to draw the path of SGD on a plane.

        t_i = e_i'(w - center)                                            (2)

    Args:
        weights: List of networks, each a list of arrays in the shapes of the
            trainable variables.
        directions: List of directions, each a list of arrays in the shapes of
            the trainable variables, or a vector. The function scales the
            directions to unit length.
        center: The origin, a list of arrays or a vector.

    Returns:
        Array of float64 with a row for each network and a column for each
        direction.

    Example:

    ```python
    center = model.get_weights()
    direction = [np.ones_like(w) for w in center]
    moved = [w + 0.1 for w in center]
    keras_bdl.extend.project_weights([moved], [direction], center)
    ```
    """
    shapes = _shapes_of(weights)
    units = unit_vectors(directions, shapes)
    origin = as_vector("center", center, shapes)
    return np.stack(
        [
            units @ (as_vector(f"weights[{i}]", one, shapes) - origin)  # (2)
            for i, one in enumerate(weights)
        ]
    )


def _shapes_of(weights: Any) -> list:
    if not isinstance(weights, (list, tuple)) or not weights:
        raise ValueError(
            "`weights` must be a list of networks, at least one, each a list "
            f"of arrays. Received: weights of type {type(weights).__name__}"
        )
    return [np.shape(array) for array in weights[0]]
