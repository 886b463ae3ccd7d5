"""Report on the ends of the spectrum of a Hessian."""

import dataclasses

import numpy as np

from keras_bdl.diagnostics.loss_surface.weight_vectors import as_arrays
from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True, eq=False)
class HessianEigenvalues(Report):
    """Extreme eigenvalues. Made by `hessian_eigenvalues`.

    `to_dict` leaves the vectors out, which are as long as the network is
    large.

    Attributes:
        examples: How many examples there were.
        size: Number of weights.
        products: How many products with the Hessian it took.
        minimum: The least eigenvalue.
        maximum: The largest eigenvalue.
        residuals: `|H e - lambda e|` of both, which bounds how far each is
            from an eigenvalue.
        vectors: Array `(2, size)` of their unit eigenvectors.
        shapes: Of the trainable variables.
    """

    examples: int
    size: int
    products: int
    minimum: float
    maximum: float
    residuals: list
    vectors: np.ndarray = dataclasses.field(repr=False)
    shapes: list = dataclasses.field(repr=False)

    def directions(self) -> list:
        """Returns both eigenvectors as lists of arrays, the least first."""
        return [as_arrays(vector, self.shapes) for vector in self.vectors]

    def to_dict(self) -> dict:
        """Returns the numbers as a dict of plain Python types."""
        left_out = ("vectors", "shapes")
        names = [f.name for f in dataclasses.fields(self)]
        return {n: getattr(self, n) for n in names if n not in left_out}

    def title(self) -> str:
        """Returns the first line."""
        return (
            f"Hessian of the loss of {self.examples} examples, {self.size} "
            f"weights, {self.products} products"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        return [
            (
                "Ends of the spectrum",
                [
                    ["", "eigenvalue", "residual"],
                    ["minimum", self.minimum, self.residuals[0]],
                    ["maximum", self.maximum, self.residuals[1]],
                ],
            )
        ]
