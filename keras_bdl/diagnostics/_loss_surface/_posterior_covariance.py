"""Products with the covariance of a posterior, without forming the matrix."""

import math
from typing import Any

import numpy as np

from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._low_rank_gaussian import BLOCK
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian


class PosteriorCovariance:
    """The covariance of a `Gaussian` or `LowRankGaussian`.

        S = s (diag(v) + D D' / (c - 1))                                  (1)

    with the scale s, the variances v and the c columns of D. If the posterior
    has `block=True`, D D' is zero between different variables.

    Args:
        posterior: The posterior. The class reads the columns of D in blocks and
            does not copy all of them.

    Attributes:
        shapes: Shapes of the variables.
        size: Number of weights.
        rank: c, or 0 without columns.
    """

    def __init__(self, posterior: Gaussian | LowRankGaussian):
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
        """Returns a linear combination of the columns of D.

        Args:
            place: Index of a matrix of `grams`. The result is 0 for variables
                outside of this matrix.
            factors: One factor for each column.
        """
        vector = np.zeros(self.size)
        for part, columns in self._pieces(self._groups()[place]):
            vector[part] = factors @ columns
        return vector

    def _groups(self):
        if not self._columns:
            return []
        places = range(len(self._columns))
        return [[i] for i in places] if self._block else [places]

    def _pieces(self, group):
        """Yields slices of the weights and the columns there, in float64."""
        starts = np.cumsum([0, *(math.prod(shape) for shape in self.shapes)])
        for i in group:
            columns = self._columns[i]
            for begin in range(0, columns.shape[1], BLOCK):
                piece = columns[:, begin : begin + BLOCK].astype("float64")
                first = starts[i] + begin
                yield slice(first, first + piece.shape[1]), piece
