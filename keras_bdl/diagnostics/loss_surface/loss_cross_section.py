"""The training loss along rays through the space of weights."""

import dataclasses

import numpy as np

from keras_bdl.diagnostics.loss_surface.loss_near_network import LossSurface
from keras_bdl.diagnostics.loss_surface.loss_near_network import distances_of
from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True)
class LossSurfaceReport(Report):
    """Loss at many places, as `LossCrossSection` and `LossPlane` say it."""

    examples: int
    distances: list
    loss: list
    penalty: list
    error: list

    @property
    def total(self) -> np.ndarray:
        """Loss and penalty, an array in the shape of `loss`."""
        return np.array(self.loss) + np.array(self.penalty)

    @property
    def log_density(self) -> np.ndarray:
        """That of the posterior but for a constant, zero at its highest."""
        return -self.examples * (self.total - np.nanmin(self.total))


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


def loss_cross_section(
    model,
    data,
    directions,
    distances,
    center=None,
    loss=None,
    weight_decay: float = 0.0,
    prior=None,
    batch_norm_data=None,
    batch_norm_fraction: float = 1.0,
    batch_size: int | None = None,
    verbose="auto",
) -> LossCrossSection:
    """Evaluates the loss on lines through a network.

    Along each direction v_i, made to unit length, it is

        phi_i(t) = L(center + t v_i / |v_i|)                              (1)
        L(w) = nll(w) + penalty(w)                                        (2)
        penalty(w) = regularizers(w) + a/2 |w|^2 - log p(w) / N           (3)

    with nll the mean loss over the N examples, a `weight_decay` and p the
    `prior`. Then -N L is the log of the posterior density, up to a constant.
    The model is called with `training=False`. It is traced once for all
    points and later calls, and left as it was, also after an error.

    Args:
        model: A built Keras model with ordinary weights.
        data: The training data `(x, y)` or `(x, y, sample_weight)` as arrays,
            or a batched `tf.data.Dataset` or `keras.utils.PyDataset`. All of
            it is read for every point: leave out augmentation and shuffling.
        directions: List of directions, each a list of arrays in the shapes of
            the trainable variables, or a vector; such as those of
            `posterior_eigenvectors(posterior).directions()`.
        distances: The values of t, numbers.
        center: A `Posterior`, of which the mean is taken; the report then
            has the standard deviations that SWAG sees along the directions.
            Or a list of arrays. Defaults to `None`: the weights of the model.
        loss: The negative log-likelihood, as `compile` takes it. Defaults to
            `None`, the one that the model is compiled with.
        weight_decay: a in (3), of all trainable variables, with the gradient
            of `keras.optimizers.SGD(weight_decay=a)`. Defaults to `0.0`.
        prior: p in (3), of the variables that have no regularizer; anything
            that `keras_bdl.priors.get` takes. Defaults to `None`: flat.
        batch_norm_data: Training inputs on which BatchNorm statistics are
            estimated again at every point, see `keras_bdl.predict`. Defaults
            to `None`: they stay as they are.
        batch_norm_fraction: The part of it to use. Defaults to `1.0`.
        batch_size: For arrays. Defaults to `None`, 32.
        verbose: `0` for silence, `1` for a progress bar, `2` for one line.
            Defaults to `"auto"`, `1`.

    Returns:
        A `LossCrossSection`, which `keras_bdl.plots.loss_cross_section`
        draws.

    Example:

    ```python
    axes = keras_bdl.diagnostics.posterior_eigenvectors(swag.posterior, 5)
    section = keras_bdl.diagnostics.loss_cross_section(
        model,
        (x, y),
        axes.directions(),
        np.linspace(-20, 20, 21),
        center=swag.posterior,
        weight_decay=5e-4,
        batch_norm_data=x,
    )
    keras_bdl.plots.loss_cross_section(section)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.3
    """
    distances = distances_of("distances", distances)
    surface = LossSurface(
        model,
        data,
        directions,
        center,
        loss,
        weight_decay,
        prior,
        batch_norm_data,
        batch_norm_fraction,
        batch_size,
        verbose,
    )
    count = len(surface.units)
    points = np.kron(np.eye(count), distances[:, None])
    found = surface.at(points)
    stddevs = None
    if surface.covariance is not None:
        stddevs = np.sqrt(np.diag(surface.covariance)).tolist()
    return LossCrossSection(
        examples=surface.examples,
        distances=distances.tolist(),
        stddevs=stddevs,
        **{k: v.reshape(count, -1).tolist() for k, v in found.items()},
    )
