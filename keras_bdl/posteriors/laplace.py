"""Laplace's approximation of the posterior of a trained model."""

import dataclasses

import numpy as np

from keras_bdl.posteriors.arguments import as_list
from keras_bdl.posteriors.arguments import as_positive
from keras_bdl.posteriors.evidence import Evidence
from keras_bdl.posteriors.gaussian import as_moment
from keras_bdl.posteriors.matrix_curvature import MatrixCurvature
from keras_bdl.posteriors.matrix_curvature import as_curvatures
from keras_bdl.posteriors.matrix_normal import MatrixNormal


class Laplace(MatrixNormal):
    """A Gaussian around trained weights, as wide as the data leave it.

    Made by `Laplace.fit`. With the weights w* where training ended, F the
    Fisher information of all N examples, a prior `N(0, 1/delta)` of every
    weight and temperature T,

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

    @classmethod
    def fit(
        cls,
        model,
        data,
        structure: str = "kronecker",
        subset: str = "all",
        *,
        prior_precision: float | str,
        validation_data=None,
        labels: str = "expected",
        label_draws: int = 1,
        temperature: float = 1.0,
        dataset_size: int | None = None,
        loss=None,
        exclude_from_inference=("BatchNormalization", "LearnedStddev"),
        batch_size: int | None = None,
        fallback: bool = False,
        seed: int = 0,
        verbose="auto",
    ):
        """Returns the approximation at the weights that a model has.

        The model is an ordinary Keras model, trained as ever, with one output
        and a loss that is the mean negative log-likelihood: a cross-entropy
        or `keras_bdl.likelihoods.Gaussian`. It runs as in inference, and is
        not changed. BatchNorm statistics are constants, in F as in draws.

        A regularizer of training is a prior: `L2(c)`, of all weights, is the
        one of precision `2 c N`. It is no part of F; give that precision, if
        w* is to be the maximum of the posterior, or another and accept that
        (1) stays around w*.

        Args:
            model: A trained Keras model.
            data: The training data: `x`, `(x, y)` or `(x, y, sample_weight)`
                of arrays (several inputs as a list or a dictionary), or a
                batched `tf.data.Dataset`, a `keras.utils.PyDataset` or a
                generator of these. Labels count for
                `log_marginal_likelihood` only. It is gone through once.
            structure: `"kronecker"` or `"diagonal"`. Defaults to
                `"kronecker"`.
            subset: Which weights are uncertain, `"all"` or those of the
                `"last_layer"`, the last that has any; all others stay as they
                are. Defaults to `"all"`.
            prior_precision: delta; `"evidence"` or `"marginal_likelihood"`,
                the one that maximises `log_marginal_likelihood`; or
                `"validation"`, the power of the root of 10 with the best
                log-likelihood of `keras_bdl.predict` on `validation_data`.
                Where a network fits all its data, F is near zero, draws are
                as wide as delta says, and `"evidence"` leaves them too wide
                to predict well.
            validation_data: Held-out `(x, y)`, or such batches that can be
                read again. Defaults to `None`.
            labels: `"expected"`, (2) as it is, by as many backward passes as
                the output has entries; or `"drawn"`, an estimate by
                `label_draws` passes. Defaults to `"expected"`.
            label_draws: How many labels are drawn for each example. Defaults
                to `1`.
            temperature: T. Defaults to `1.0`.
            dataset_size: N, if `data` is a part of the training data. Defaults
                to `None`, counted.
            loss: The negative log-likelihood, as `compile` takes it. Defaults
                to `None`, the one that the model is compiled with.
            exclude_from_inference: Names of layers, of classes of layers or
                of variables that stay as they are. Defaults to
                `("BatchNormalization", "LearnedStddev")`.
            batch_size: For arrays. Defaults to `None`, 32.
            fallback: Whether layers that `keras_bdl.curvature` has no rule
                for are differentiated example by example, which is slow.
                Defaults to `False`, where they are an error.
            seed: Selects the drawn labels and the draws of validation.
                Defaults to `0`.
            verbose: `0` for silence, `1` for a progress bar, `2` for one
                line. Defaults to `"auto"`, `1`.

        Returns:
            A `Laplace`.

        Example:

        ```python
        posterior = keras_bdl.posteriors.Laplace.fit(
            model, (x, y), prior_precision="marginal_likelihood"
        )
        prediction = keras_bdl.predict(model, x_test, posterior=posterior)
        ```

        Reference:
            - MacKay, [A Practical Bayesian Framework for Backpropagation
              Networks](https://doi.org/10.1162/neco.1992.4.3.448)
            - Ritter et al., [A Scalable Laplace Approximation for Neural
              Networks](https://openreview.net/forum?id=Skdvd2xAZ), whose
              damping goes to each factor, and here to their product
            - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in
              Deep Learning](https://arxiv.org/abs/1902.02476), "KFAC-Laplace"
        """
        # Not above: predictions, which validation makes, are of posteriors.
        from keras_bdl.laplace import fit

        return fit(
            cls,
            model,
            data,
            structure=structure,
            subset=subset,
            prior_precision=prior_precision,
            validation_data=validation_data,
            labels=labels,
            label_draws=label_draws,
            temperature=temperature,
            dataset_size=dataset_size,
            loss=loss,
            exclude_from_inference=exclude_from_inference,
            batch_size=batch_size,
            fallback=fallback,
            seed=seed,
            verbose=verbose,
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

        without the first term, a constant for delta, if `fit` saw no labels;
        w* are the uncertain weights only. It is right as long as w* is the
        maximum of the posterior for this delta.
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
