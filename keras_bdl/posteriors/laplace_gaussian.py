"""Laplace approximation of the posterior."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.arguments import as_list
from keras_bdl.arguments import check_number
from keras_bdl.posteriors.diagonal_gaussian import as_moment
from keras_bdl.posteriors.evidence import Evidence
from keras_bdl.posteriors.matrix_covariance import MatrixCurvature
from keras_bdl.posteriors.matrix_covariance import as_curvatures
from keras_bdl.posteriors.matrix_normal import MatrixNormal


class Laplace(MatrixNormal):
    """A Gaussian around trained weights with the curvature of the loss.

    `keras_bdl.fit_laplace` returns this posterior. With the trained weights
    w*, F the Fisher information of all N examples, a prior `N(0, 1/delta)` for
    every weight and temperature T,

        w ~ N(w*, (F / T + delta I)^-1)                                   (1)
        F = sum_i E[g_i g_i^T],  g_i = d log p(y | x_i, w*)/dw,
        y drawn from p(y | x_i, w*)                                       (2)

    The labels in (2) are drawn from the model, because the gradients for the
    labels of the data vanish if the fit is good. For logits, and for means with
    known noise, F is the Gauss-Newton matrix. The posterior keeps two Kronecker
    factors of F for each of `matrices`. For all other weights, the posterior
    keeps the diagonal of F.

    The temperature T changes only the likelihood: (1) targets
    `p(w) p(D | w)^(1/T)`. `with_scale(T)` changes prior and likelihood.

    Args:
        mean: w*, one array for each trainable variable.
        curvature: One entry for each variable: the diagonal of F, an array of
            the shape of the variable, or `None` for a variable that is in a
            matrix or has no noise.
        matrices: A list of `MatrixCurvature`.
        prior_precision: delta, positive.
        temperature: T, positive. Defaults to `1.0`.
        scale: Factor of the whole covariance. Defaults to `1.0`.
        names: The `name` of each variable, to recognise the model. Defaults
            to `None`: only shapes are compared.
        log_likelihood: `log p(D | w*)`. Defaults to `None`, unknown.
    """

    linearized_by_default = True

    def __init__(
        self,
        mean: Sequence[ArrayLike],
        curvature: Sequence[ArrayLike | None],
        matrices: Sequence[MatrixCurvature],
        *,
        prior_precision: float,
        temperature: float = 1.0,
        # Not `**kwargs`: the variance follows from the curvature.
        scale: float = 1.0,
        names: Sequence[str] | None = None,
        log_likelihood: float | None = None,
    ):
        self._prior_precision = float(
            check_number("prior_precision", prior_precision, above=0.0)
        )
        self._temperature = float(
            check_number("temperature", temperature, above=0.0)
        )
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
            variance=[
                None if h is None else 1.0 / (h / temperature + delta)  # (1)
                for h in self._curvature
            ],
            scale=scale,
            names=names,
        )

    @property
    def prior_precision(self) -> float:
        """Precision of the prior of every uncertain weight, delta."""
        return self._prior_precision

    @property
    def temperature(self) -> float:
        """Temperature T of the likelihood."""
        return self._temperature

    @property
    def evidence(self) -> Evidence:
        """The `Evidence`: log marginal likelihood as a function of delta."""
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
    def log_marginal_likelihood(self) -> float:
        """The Laplace approximation of log p(D | delta).

            log p(D | w*) / T - delta/2 |w*|^2
                - 1/2 log det(F / (T delta) + I)                          (3)

        The first term does not depend on delta; it is left out if the data
        held no labels. w* are the uncertain weights only. The approximation
        holds if w* is the maximum of the posterior for this delta, and if F
        is that of the network at w* (`refinements=0` of `fit_laplace`).
        """
        known = (self._log_likelihood or 0.0) / self.temperature
        return known + self.evidence(self.prior_precision)

    def needs_batch_norm(self, seed: int) -> bool:
        """Returns `False`: F holds for the statistics in the model."""
        return False

    def between(self, other: "Laplace") -> "Laplace":
        """Returns this posterior with curvatures between two posteriors.

        Each curvature has the structure of this posterior, and as its trace
        the geometric mean of both traces. Fixed-point iterations that would
        overshoot converge with this step.

        Args:
            other: A posterior of the same model.
        """
        curvature = [
            None if h is None or old is None else h * _between(h, old)
            for h, old in zip(self._curvature, other._curvature, strict=True)
        ]
        matrices = [
            dataclasses.replace(
                new,
                output_values=new.output_values
                * _between(new.eigenvalues, old.eigenvalues),
            )
            for new, old in zip(
                self._curvatures, other._curvatures, strict=True
            )
        ]
        return type(self)(
            **{
                **self._arguments(),
                "curvature": curvature,
                "matrices": matrices,
            }
        )

    def with_prior_precision(self, prior_precision: float) -> "Laplace":
        """Returns this posterior with another prior precision.

        Args:
            prior_precision: delta.
        """
        return type(self)(
            **{**self._arguments(), "prior_precision": prior_precision}
        )

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        state = super().get_state()
        return {
            "kind": state["kind"],
            "structure": state["structure"],
            **self._arguments(),
            "matrices": [vars(c) for c in self._curvatures],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Laplace":
        """Returns the posterior that `get_state` described."""
        fields = [f.name for f in dataclasses.fields(MatrixCurvature)]
        matrices = [
            MatrixCurvature(**{name: m[name] for name in fields})
            for m in state["matrices"]
        ]
        names = ["mean", "curvature", "prior_precision", "temperature"]
        names += ["scale", "names", "log_likelihood"]
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


def _between(new, old):
    """Returns the factor from a trace to the geometric mean with another."""
    new, old = float(np.sum(new)), float(np.sum(old))
    return np.float32((old / new) ** 0.5) if new > 0 and old > 0 else 1.0


def _as_curvature(index, array):
    array = as_moment(f"curvature[{index}]", array)
    if np.any(array < 0):
        raise ValueError(
            "`curvature` must not be negative. "
            f"Received: {array.min()} in curvature[{index}]"
        )
    return array
