"""Report on the loss along rays."""

import dataclasses

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_surface_report import (
    LossSurfaceReport,
)


@dataclasses.dataclass(frozen=True)
class LossCrossSection(LossSurfaceReport):
    """Loss along rays. Made by `loss_cross_section`.

    `loss`, `penalty` and `error` have a list for each direction, with an
    entry for each distance.

    Attributes:
        examples: How many examples there were, N.
        distances: From the center.
        loss: Mean loss of the examples, without penalties.
        penalty: Regularizers, weight decay and prior, for an example.
        error: Share of wrong classifications; NaN if there are no classes.
        stddevs: Of the posterior along each direction, or `None`.
    """

    stddevs: list | None = None

    @property
    def posterior_energy(self) -> np.ndarray | None:
        """What `total` would gain from the center on, were it Gaussian.

        `t^2 / (2 N s^2)` with the standard deviations s of the posterior, the
        negative log of its projected density for an example; `None` without.
        """
        if self.stddevs is None:
            return None
        ratios = np.divide.outer(np.square(self.distances), self.stddevs)
        ratios = np.divide(ratios, self.stddevs)
        return ratios.T / (2 * self.examples)

    def title(self) -> str:
        """Returns the first line."""
        return (
            f"Loss of {self.examples} examples along {len(self.loss)} "
            f"directions, {len(self.distances)} points from "
            f"{min(self.distances):g} to {max(self.distances):g}"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        rows = [["", "lowest", "at", "highest", "stddev"]]
        for i, total in enumerate(self.total):
            lowest = self.distances[int(np.nanargmin(total))]
            stddev = float("nan") if self.stddevs is None else self.stddevs[i]
            rows.append(
                [
                    str(i),
                    np.nanmin(total),
                    f"{lowest:g}",
                    np.nanmax(total),
                    stddev,
                ]
            )
        return [("Loss and penalty, and the posterior", rows)]
