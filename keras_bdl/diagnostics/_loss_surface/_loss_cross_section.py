"""The training loss along rays through weight space."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Data
from keras_bdl._inherited_arguments import inherits_arguments
from keras_bdl._reports import Report
from keras_bdl.diagnostics._loss_surface._loss_near_network import LossSurface
from keras_bdl.diagnostics._loss_surface._loss_near_network import distances_of


@dataclasses.dataclass(frozen=True)
class LossSurfaceReport(Report):
    """Base of the reports on the loss at many points of weight space."""

    examples: int
    distances: list
    loss: list
    penalty: list
    error: list

    @property
    def total(self) -> np.ndarray:
        """Sum of loss and penalty, an array in the shape of `loss`."""
        return np.array(self.loss) + np.array(self.penalty)

    @property
    def log_density(self) -> np.ndarray:
        """Log posterior density, up to a constant, with maximum zero."""
        return -self.examples * (self.total - np.nanmin(self.total))


@dataclasses.dataclass(frozen=True)
class LossCrossSectionReport(LossSurfaceReport):
    """Loss along rays, made by `loss_cross_section`.

    `loss`, `penalty` and `error` have a list for each direction, with an entry
    for each distance.

    Attributes:
        examples: N, number of examples.
        distances: Distances from the center.
        loss: Mean loss of the examples, without penalties.
        penalty: Regularizers, weight decay and prior, per example.
        error: Share of wrong classifications, NaN unless the model is a
            classifier with one output.
        stddevs: Standard deviation of the posterior along each direction.
            `None` unless `center` is a `Gaussian` or `LowRankGaussian`.
    """

    stddevs: list | None = None

    @property
    def posterior_energy(self) -> np.ndarray | None:
        """Rise of `total` above the center, according to the posterior.

        The rise is `t^2 / (2 N s^2)`, with the distances t and the standard
        deviations s of the posterior. This is the negative log density of the
        projected posterior, per example, up to a constant. `None` if `stddevs`
        is `None`.
        """
        if self.stddevs is None:
            return None
        ratios = np.divide.outer(np.square(self.distances), self.stddevs)
        ratios = np.divide(ratios, self.stddevs)
        return ratios.T / (2 * self.examples)

    def title(self) -> str:
        """Returns the first line of the printed report."""
        return (
            f"Loss of {self.examples} examples along {len(self.loss)} "
            f"directions, {len(self.distances)} points from "
            f"{min(self.distances):g} to {max(self.distances):g}"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        rows: list[list] = [["", "lowest", "at", "highest", "stddev"]]
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


@inherits_arguments(LossSurface)
def loss_cross_section(
    model: keras.Model,
    data: Data,
    directions: Any,
    *,
    distances: ArrayLike,
    **options: Any,
) -> LossCrossSectionReport:
    """Evaluates the loss on lines through a network.

    Use it to compare the shape of the loss with the posterior of
    `keras_bdl.SWAG`. Along each direction v_i, scaled to unit length, the loss
    is

        phi_i(t) = L(center + t v_i / |v_i|)                              (1)
        L(w) = nll(w) + penalty(w)                                        (2)
        penalty(w) = regularizers(w) + a/2 |w|^2 - log p(w) / N           (3)

    with nll the mean loss over the N examples, a the `weight_decay` and p the
    `prior`. -N L is the log of the posterior density, up to a constant. The
    model is called with `training=False`. TensorFlow traces the model once for
    all points and later calls. Afterwards the model is unchanged, also after an
    error.

    Args:
        model: A built Keras model with ordinary weights.
        data: The training data `(x, y)` or `(x, y, sample_weight)` as arrays,
            or a batched `tf.data.Dataset` or `keras.utils.PyDataset`. All data
            are read for every point, so use neither augmentation nor
            shuffling.
        directions: List of directions. Each is a list of arrays in the shapes
            of the trainable variables, or a vector, such as
            `posterior_eigenvectors(posterior).directions()`.
        distances: The values of t, a list of numbers.
        **options: Passed to `LossSurface`.

    Returns:
        A `LossCrossSectionReport` for `keras_bdl.plots.loss_cross_section`.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=0, rank=2)
    model.fit(x, y, epochs=4, callbacks=[swag])
    axes = keras_bdl.diagnostics.posterior_eigenvectors(
        swag.posterior, count=2
    )
    section = keras_bdl.diagnostics.loss_cross_section(
        model,
        (x, y),
        axes.directions(),
        distances=np.linspace(-1, 1, 5),
        center=swag.posterior,
        weight_decay=5e-4,
    )
    keras_bdl.plots.loss_cross_section(section)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.3
    """
    distances = distances_of("distances", distances)
    surface = LossSurface(model, data, directions, **options)
    count = len(surface.units)
    points = np.kron(np.eye(count), distances[:, None])
    found = surface.at(points)
    stddevs = None
    if surface.covariance is not None:
        stddevs = np.sqrt(np.diag(surface.covariance)).tolist()
    return LossCrossSectionReport(
        examples=surface.examples,
        distances=distances.tolist(),
        stddevs=stddevs,
        **{k: v.reshape(count, -1).tolist() for k, v in found.items()},
    )
