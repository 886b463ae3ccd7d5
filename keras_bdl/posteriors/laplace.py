"""Laplace's approximation of the posterior, and its evidence."""

import dataclasses

import numpy as np

from keras_bdl.arguments import as_list
from keras_bdl.arguments import as_positive
from keras_bdl.posteriors.gaussian import as_moment
from keras_bdl.posteriors.matrix_covariance import MatrixCurvature
from keras_bdl.posteriors.matrix_covariance import as_curvatures
from keras_bdl.posteriors.matrix_normal import MatrixNormal


class Evidence:
    """The marginal likelihood of Laplace's method, as a function of delta.

    With weights w* at the maximum of the posterior, D of them, a prior
    `N(0, 1/delta)` and lambda_i the eigenvalues of the curvature of the data,

        log p(D | delta) = log p(D | w*) + log N(w*; 0, 1/delta)
                + D/2 log(2 pi) - 1/2 sum_i log(lambda_i + delta)
            = log p(D | w*) - delta/2 |w*|^2
                - 1/2 sum_i log(1 + lambda_i / delta)                     (1)

    whose derivative by log delta, twice,

        sum_i lambda_i / (lambda_i + delta) - delta |w*|^2                (2)

    falls from positive to negative values: there is one maximum.

    Args:
        eigenvalues: The lambda_i, in any number of arrays.
        square_norm: |w*|^2.
    """

    def __init__(self, eigenvalues: list, square_norm: float):
        self._eigenvalues = eigenvalues
        self._square_norm = square_norm

    def __call__(self, delta: float):
        """Returns (1) without its first term."""
        logs = sum(np.sum(np.log1p(e / delta)) for e in self._values())
        return float(-0.5 * (delta * self._square_norm + logs))  # (1)

    def effective_number(self, delta: float):
        """Returns the first term of (2), the weights that the data know.

        Args:
            delta: The prior precision.
        """
        return float(sum(np.sum(e / (e + delta)) for e in self._values()))

    def maximum(self):
        """Returns the delta at which (2) is zero."""
        from scipy.optimize import brentq

        size = sum(e.size for e in self._eigenvalues)
        if not self._square_norm > 0 or not any(
            np.any(e > 0) for e in self._eigenvalues
        ):
            raise ValueError(
                "The marginal likelihood has no maximum: the weights are all "
                "zero, or do not change what the model says. Give a number "
                "for `prior_precision`. "
                f"Received: |w|^2={self._square_norm:g}"
            )

        def slope(log_delta):
            delta = np.exp(log_delta)
            known = self.effective_number(delta)
            return known - delta * self._square_norm  # (2)

        # No more than all weights are known, and if delta is small enough,
        # at least one.
        high = np.log(size / self._square_norm)
        low = high
        while slope(low) <= 0:
            low -= 2.0
        if low == high:
            return float(np.exp(high))
        return float(np.exp(brentq(slope, low, high, xtol=1e-10)))

    def _values(self):
        return (np.asarray(e, "float64") for e in self._eigenvalues)


class Laplace(MatrixNormal):
    """A Gaussian around trained weights, as wide as the data leave it.

    `keras_bdl.fit_laplace` makes it. With the weights w* where training ended,
    F the Fisher information of all N examples, a prior `N(0, 1/delta)` of
    every weight and temperature T,

        w ~ N(w*, (F / T + delta I)^-1)                                   (1)
        F = sum_i E[g_i g_i^T],  g_i = d log p(y | x_i, w*)/dw,
        y drawn from p(y | x_i, w*)                                       (2)

    The labels of (2) are those of the model and not of the data, whose
    gradients vanish where the fit is good. For logits and for means with
    known noise, F is the Gauss-Newton matrix. Of F there is the diagonal, or
    one block a layer, the product of two Kronecker factors; weights in no
    matrix have the diagonal then. (1) targets `p(w) p(D | w)^(1/T)`: the
    likelihood alone is tempered. `with_scale(T)` tempers all.

    Args:
        mean: w*, one array for each trainable variable.
        curvature: For each variable the diagonal of F, an array, if it is
            uncertain and in no matrix; `None` otherwise.
        matrices: A list of `MatrixCurvature`.
        prior_precision: delta, positive.
        temperature: T, positive. Defaults to `1.0`.
        scale: Factor of the whole covariance. Defaults to `1.0`.
        names: Leaf names of the variables, to recognise the model by.
            Defaults to `None`: only shapes are compared.
        log_likelihood: `log p(D | w*)`. Defaults to `None`, unknown.
    """

    def __init__(
        self,
        mean: list,
        curvature: list,
        matrices: list,
        prior_precision: float,
        temperature: float = 1.0,
        scale: float = 1.0,
        names: list | None = None,
        log_likelihood: float | None = None,
    ):
        self._prior_precision = as_positive("prior_precision", prior_precision)
        self._temperature = as_positive("temperature", temperature)
        self._curvature = [
            None if h is None else _as_curvature(i, h)
            for i, h in enumerate(as_list("curvature", curvature, "arrays"))
        ]
        self._curvatures = as_curvatures("matrices", matrices)
        self._log_likelihood = log_likelihood
        delta, temperature = self._prior_precision, self._temperature
        super().__init__(
            mean,
            [c.covariance(delta, temperature) for c in self._curvatures],
            [
                None if h is None else 1.0 / (h / temperature + delta)  # (1)
                for h in self._curvature
            ],
            scale,
            names,
        )

    @property
    def prior_precision(self):
        """Precision of the prior of every uncertain weight, delta."""
        return self._prior_precision

    @property
    def temperature(self):
        """Temperature of the likelihood, T."""
        return self._temperature

    @property
    def evidence(self):
        """The `Evidence`: (3) as a function of delta, and its maximum."""
        eigenvalues = [c.eigenvalues for c in self._curvatures]
        eigenvalues += [h for h in self._curvature if h is not None]
        means = [
            mean
            for i, mean in enumerate(self._mean)
            if i in self._of_variable or self._curvature[i] is not None
        ]
        return Evidence(
            [np.asarray(e, "float64") / self.temperature for e in eigenvalues],
            sum(float(np.sum(np.square(m, dtype="float64"))) for m in means),
        )

    @property
    def log_marginal_likelihood(self):
        """Laplace's approximation of log p(D | delta).

            log p(D | w*) / T - delta/2 |w*|^2
                - 1/2 log det(F / (T delta) + I)                          (3)

        without the first term, a constant for delta, if the data held no
        labels; w* are the uncertain weights only. It is right as long as w*
        is the maximum of the posterior for this delta.
        """
        known = (self._log_likelihood or 0.0) / self.temperature
        return known + self.evidence(self.prior_precision)

    def needs_batch_norm(self, seed):
        """No: F is that of a network with the statistics that it has."""
        return False

    def with_prior_precision(self, prior_precision: float):
        """Returns this approximation with another delta.

        Args:
            prior_precision: delta.
        """
        return type(self)(
            **{**self._arguments(), "prior_precision": prior_precision}
        )

    def get_state(self):
        """Returns all arguments."""
        state = super().get_state()
        return {
            "kind": state["kind"],
            "structure": state["structure"],
            **self._arguments(),
            "matrices": [vars(c) for c in self._curvatures],
        }

    @classmethod
    def from_state(cls, state):
        """Returns the posterior that `get_state` described."""
        fields = [f.name for f in dataclasses.fields(MatrixCurvature)]
        matrices = [
            MatrixCurvature(**{name: m[name] for name in fields})
            for m in state["matrices"]
        ]
        names = ("mean", "curvature", "prior_precision", "temperature")
        names += ("scale", "names", "log_likelihood")
        return cls(matrices=matrices, **{name: state[name] for name in names})

    def _facts(self):
        return {
            **super()._facts(),
            "prior_precision": self.prior_precision,
            "temperature": self.temperature,
        }

    def _arguments(self):
        return {
            "mean": self._mean,
            "curvature": self._curvature,
            "matrices": self._curvatures,
            "prior_precision": self.prior_precision,
            "temperature": self.temperature,
            "scale": self.scale,
            "names": self.structure.names,
            "log_likelihood": self._log_likelihood,
        }


def _as_curvature(index, array):
    array = as_moment(f"curvature[{index}]", array)
    if np.any(array < 0):
        raise ValueError(
            "`curvature` must not be negative. "
            f"Received: {array.min()} in curvature[{index}]"
        )
    return array
