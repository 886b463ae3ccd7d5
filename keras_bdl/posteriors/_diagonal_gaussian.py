"""Gaussian posterior with a diagonal covariance."""

import copy
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl._random._seeds import generator
from keras_bdl.posteriors._covariance_blocks import CovarianceBlocks
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.posteriors._structure import Structure

AnyGaussian = TypeVar("AnyGaussian", bound="Gaussian")


class Gaussian(Posterior):
    """Independent Gaussians over the trainable variables of a model.

    `VOGN`, `IVON`, `SWA` and the objectives return this posterior. A sample is

        w = mean + sqrt(scale) * sqrt(variance) * z,    z ~ N(0, I)       (1)

    Args:
        mean: One array for each trainable variable.
        variance: One array for each array of `mean`, not negative, or `None`
            for a variable that does not vary. Defaults to `None`: all
            variances are zero, so every sample is the mean.
        scale: Factor of the whole covariance. `0` makes every sample the
            mean. Defaults to `1.0`.
        names: The `name` of each variable, to recognise the model. Defaults
            to `None`: only shapes are compared.
        trained_under_draws: Whether training drew the weights from this
            posterior. The BatchNorm statistics of the model are then averages
            over posterior samples and need no new estimate. Defaults to
            `False`.

    Example:

    ```python
    weights = [np.asarray(v) for v in model.trainable_variables]
    narrow = keras_bdl.posteriors.Gaussian(
        weights, [np.full(w.shape, 1e-4) for w in weights]
    )
    prediction = keras_bdl.predict(model, x_test, narrow, samples=5)
    ```
    """

    def __init__(
        self,
        mean: Sequence[ArrayLike],
        variance: Sequence[ArrayLike | None] | None = None,
        *,
        scale: float = 1.0,
        names: Sequence[str] | None = None,
        trained_under_draws: bool = False,
    ):
        self._mean = _as_moments("mean", mean)
        if not self._mean:
            raise ValueError(
                "`mean` must have at least one array, one for each trainable "
                "variable. Received: mean=[]"
            )
        super().__init__(Structure([m.shape for m in self._mean], names))
        self._variance = None
        if variance is not None:
            self._variance = _as_moments("variance", variance, optional=True)
            self._check_shapes("variance", self._variance)
            for i, v in enumerate(self._variance):
                if v is not None and np.any(v < 0):
                    raise ValueError(
                        "`variance` must not be negative. Received: "
                        f"{v.min()} in variance[{i}]"
                    )
        self._scale = float(check_number("scale", scale, at_least=0.0))
        self.trained_under_draws = check_bool(
            "trained_under_draws", trained_under_draws
        )

    @property
    def scale(self) -> float:
        """Factor of the whole covariance."""
        return self._scale

    @property
    def is_point(self) -> bool:
        """Whether the covariance is zero."""
        return self._scale == 0 or not self._spreads()

    def with_scale(self: AnyGaussian, scale: float) -> AnyGaussian:
        """Returns this posterior with another `scale`.

        The two posteriors share their arrays.

        Args:
            scale: Factor of the whole covariance.
        """
        other = copy.copy(self)
        other._scale = float(check_number("scale", scale, at_least=0.0))
        return other

    def mean(self) -> list[np.ndarray]:
        """Returns the means, read-only."""
        return list(self._mean)

    def covariance_blocks(self) -> CovarianceBlocks | None:
        """Returns the variances as blocks."""
        return CovarianceBlocks.of(self._variance, scale=self._scale)

    def sample(self, seed: int) -> list[np.ndarray]:
        """Returns the sample (1) with the noise of a seed."""
        rng = generator(seed)
        draw = []
        for mean, noise in zip(self._mean, self._noises(rng), strict=True):
            noise *= np.sqrt(self._scale).astype(noise.dtype)
            noise += mean
            draw.append(noise)  # (1)
        return draw

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        return {
            **super().get_state(),
            "mean": self._mean,
            "variance": self._variance,
            "scale": self._scale,
            "trained_under_draws": self.trained_under_draws,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Gaussian":
        """Returns the posterior that `get_state` described."""
        return cls(
            state["mean"],
            state["variance"],
            scale=state["scale"],
            names=state["structure"]["names"],
            trained_under_draws=state.get("trained_under_draws", False),
        )

    def _facts(self):
        return {**super()._facts(), "scale": self._scale}

    def _spreads(self):
        """Returns whether the covariance is not zero for `scale=1`."""
        return self._variance is not None and any(map(np.any, self._variance))

    def _noises(self, rng):
        """Yields a new array for each variable: the noise for `scale=1`."""
        for i, mean in enumerate(self._mean):
            noise = np.zeros(mean.shape, mean.dtype)
            if self._variance is not None and self._variance[i] is not None:
                rng.standard_normal(out=noise, dtype=noise.dtype)
                noise *= np.sqrt(self._variance[i], dtype=noise.dtype)
            yield noise

    def _check_shapes(self, name, arrays, leading=()):
        shapes = [(*leading, *m.shape) for m in self._mean]
        for i, (array, shape) in enumerate(zip(arrays, shapes, strict=False)):
            if array is not None and array.shape != shape:
                raise ValueError(
                    f"`{name}` must have the shapes of `mean`"
                    f"{' after an axis of columns' * bool(leading)}. "
                    f"Received: {name}[{i}] of shape {array.shape}, expected "
                    f"{shape}"
                )
        if len(arrays) != len(shapes):
            raise ValueError(
                f"`{name}` must have one array for each array of `mean`. "
                f"Received: {len(arrays)} for {len(shapes)}"
            )


def all_finite(array: np.ndarray) -> bool:
    """Returns whether an array has no NaN and no infinity.

    Args:
        array: Numbers. No second array of this size is made.
    """
    return bool(np.isfinite(np.sum(array, dtype="float64")))


def _as_moments(name, arrays, optional=False):
    """Returns finite, read-only float32 or float64 arrays."""
    return [
        None if array is None and optional else as_moment(f"{name}[{i}]", array)
        for i, array in enumerate(as_list(name, arrays, "arrays"))
    ]


def as_moment(name: str, array: ArrayLike) -> np.ndarray:
    """Returns a finite, read-only array in float32 or float64.

    Args:
        name: Name in error messages, such as `"mean[0]"`.
        array: Numbers.
    """
    array = np.asarray(array)
    if array.dtype != "float64":
        array = array.astype("float32", copy=False)
    if not all_finite(array):
        raise ValueError(
            f"`{name.partition('[')[0]}` must be finite. Received: NaN or "
            f"infinity in {name}. Check whether the training diverged."
        )
    return read_only(array)


def read_only(array: np.ndarray) -> np.ndarray:
    """Returns a read-only view of an array.

    Args:
        array: Any array.
    """
    view = array.view()
    view.flags.writeable = False
    return view
