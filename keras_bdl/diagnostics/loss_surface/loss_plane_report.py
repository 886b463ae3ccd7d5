"""Report on the loss on a plane."""

import dataclasses

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_surface_report import (
    LossSurfaceReport,
)


@dataclasses.dataclass(frozen=True)
class LossPlane(LossSurfaceReport):
    """Loss on a grid. Made by `loss_plane`.

    `loss`, `penalty` and `error` have a list for each distance along the
    first direction, with an entry for each along the second.

    Attributes:
        examples: How many examples there were, N.
        distances: A list for each direction, from the center.
        loss: Mean loss of the examples, without penalties.
        penalty: Regularizers, weight decay and prior, for an example.
        error: Share of wrong classifications; NaN if there are no classes.
        covariance: Of the posterior in the plane, or `None`.
    """

    covariance: list | None = None

    @property
    def posterior_energy(self) -> np.ndarray | None:
        """What `total` would gain from the center on, were it Gaussian.

        `t' S^-1 t / (2 N)` with the covariance S of the posterior, the
        negative log of its projected density for an example; `None` without.
        """
        if self.covariance is None:
            return None
        points = np.stack(np.meshgrid(*self.distances, indexing="ij"), -1)
        precision = np.linalg.inv(self.covariance)
        squares = np.einsum("abi,ij,abj->ab", points, precision, points)
        return squares / (2 * self.examples)

    def title(self) -> str:
        """Returns the first line."""
        first, second = map(len, self.distances)
        return (
            f"Loss of {self.examples} examples on a plane, {first} times "
            f"{second} points"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        total, rows = self.total, []
        for name, flat in (
            ("lowest", np.nanargmin(total)),
            ("highest", np.nanargmax(total)),
        ):
            place = np.unravel_index(flat, total.shape)
            at = [d[i] for d, i in zip(self.distances, place, strict=True)]
            rows.append([name, total[place], f"{at[0]:g}", f"{at[1]:g}"])
        if self.covariance is not None:
            stddevs = np.sqrt(np.diag(self.covariance))
            rows.append(["stddev of the posterior", "", *stddevs])
        header = ["", "loss", "along 1", "along 2"]
        return [("Loss and penalty", [header, *rows])]
