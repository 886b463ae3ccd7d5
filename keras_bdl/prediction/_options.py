"""The options of `keras_bdl.predict` that few need."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number

PROBIT, MONTE_CARLO, IDENTITY = "probit", "monte_carlo", "identity"
# The links whose result is in closed form, without samples.
EXACT_LINKS = (PROBIT, IDENTITY)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Options of `keras_bdl.predict` and `keras_bdl.PosteriorPredictive`.

    Use this class for a network whose loss does not say what its outputs mean,
    for a linearised network and for a link, which most networks do not need.

    Args:
        task: `"classification"`, `"binary"` (each entry of the output is a
            Bernoulli distribution) or `"regression"`. A model with several
            outputs takes one value for all, or values in the structure of
            the outputs. Defaults to `None`: the compiled loss decides.
        from_logits: Whether a classifier returns logits. A model with several
            outputs takes values as in `task`. Defaults to `None`: the compiled
            loss decides.
        noise_stddev: Standard deviation of the observations in a regression:
            a number or an array that broadcasts to the mean. A model with
            several outputs takes such values in the structure of the outputs.
            Defaults to `None`: the noise of the compiled loss, which the losses
            of `keras_bdl.likelihoods` and the Poisson loss have.
        moments: Function for a network that predicts its own noise. The
            function maps the outputs of the model to a pair `(mean, variance)`,
            with `keras.ops`. Defaults to `None`: for each output, the method
            `moments` of its compiled loss, if the loss is one of
            `keras_bdl.likelihoods`.
        linearized: Whether to make the network linear in its weights, around
            the mean m of the posterior: each sample w predicts
            `f(x, m) + J (w - m)` with the Jacobian J. Samples of `Laplace`
            are only valid in this form, because its covariance comes from
            the same linear network. Needs a posterior with a mean. Defaults
            to `None`: `True` for `Laplace`, `False` for all others.
        link: How to use the exact Gaussian of the outputs of a linearised
            network, in place of samples of the weights. Needs a posterior of
            independent weights or of Kronecker factors, and is cheap for a last
            layer or for few outputs. `"identity"` is exact for a regression
            with known noise. Noise that the network predicts is that of m.
            `"probit"` gives a classifier approximate probabilities in closed
            form: its `mutual_information` and `stddev` are NaN.
            `"monte_carlo"` draws the outputs `samples` times, at almost no
            cost. Each example has its own distribution: the samples do not
            show how examples depend on each other. Defaults to `None`: samples
            of the weights.
        batch_norm_fraction: Fraction of `batch_norm_data` to use. Defaults to
            `1.0`.
        tolerance: Largest `Prediction.standard_error` with `samples="auto"`:
            in units of probability, or of the targets in a regression.
            Defaults to `0.01`.
        steps: Number of batches to read. Defaults to `None`, all.
        stack_bytes: Largest size in bytes of the samples of the weights that
            are in memory together, but one sample at least. The passes need
            room for one or two samples more. If not all samples fit, they are
            drawn in groups, and drawn again for each part of the data. Data
            are one part up to 256 MiB, or 16 MiB with `on_batch`. Only weights
            that differ between samples count. Defaults to `2**30`, 1 GiB.

    Example:

    ```python
    options = keras_bdl.prediction.PredictOptions(
        task="classification", from_logits=True
    )
    keras_bdl.predict(model, x_test, posterior, options=options)
    ```
    """

    task: Any = None
    from_logits: Any = None
    noise_stddev: Any = None
    moments: Callable | None = None
    linearized: bool | None = None
    link: str | None = None
    batch_norm_fraction: float = 1.0
    tolerance: float = 0.01
    steps: int | None = None
    stack_bytes: int = 2**30

    def __post_init__(self) -> None:
        check_number("tolerance", self.tolerance, above=0.0)
        check_number("stack_bytes", self.stack_bytes, at_least=1, integer=True)
        check_choice("link", self.link, (None, PROBIT, MONTE_CARLO, IDENTITY))
        if self.linearized is not None:
            check_bool("linearized", self.linearized)
        if self.moments is not None and not callable(self.moments):
            raise ValueError(
                "`moments` must be a function from the model's outputs to a "
                "pair (mean, variance), or `None`. "
                f"Received: moments={self.moments!r}"
            )
        self._check_noise()

    def _check_noise(self) -> None:
        if self.noise_stddev is None:
            return
        if self.moments is not None:
            raise ValueError(
                "`noise_stddev` must be `None` if `moments` returns the noise. "
                f"Received: noise_stddev={self.noise_stddev}, "
                f"moments={self.moments}"
            )
        for noise in keras.tree.flatten(self.noise_stddev):
            if noise is None:
                continue
            noise = np.asarray(noise)
            real = noise.dtype.kind in "fiu"
            if not (real and np.all(np.isfinite(noise)) and np.all(noise >= 0)):
                raise ValueError(
                    "`noise_stddev` must be one or more finite numbers, not "
                    f"negative. Received: noise_stddev={self.noise_stddev!r}"
                )


# The options of `None`.
DEFAULT_OPTIONS = PredictOptions()


def check_options(options: PredictOptions) -> None:
    """Raises an error if the argument `options` of a prediction is wrong."""
    if not isinstance(options, PredictOptions):
        raise ValueError(
            "`options` must be a `keras_bdl.prediction.PredictOptions`, or "
            f"`None`. Received: options={options!r}"
        )
