"""Variational online Gauss-Newton."""

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl import curvature
from keras_bdl.arguments import check_number
from keras_bdl.optimizers.natural_gradient import NaturalGradient


@keras.saving.register_keras_serializable(package="keras_bdl")
class VOGN(NaturalGradient):
    """Variational online Gauss-Newton: fits a Gaussian to the posterior.

    An optimizer of the weights of an ordinary model, which become the means
    mu of independent Gaussians. With N examples, augmentation factor rho,
    temperature tau, prior precision delta, `delta_t = tau delta / (rho N)`,
    each step looks at the batch under draws of the weights,

        w = mu + eps sqrt(tau / (rho N (s + delta_t))),  eps ~ N(0, I)    (1)

    and takes from there g, the mean gradient, and h, the mean of the squared
    gradients of the single examples, over examples, draws and replicas:

        m <- beta_1 m + g + delta_t mu                                    (2)
        s <- beta_2 s + (1 - beta_2) h                                    (3)
        mu <- mu - learning_rate m / (s + delta_t + damping)              (4)

    There is no `1 - beta_1` in (2): where gradients agree, steps are
    `1 / (1 - beta_1)` times as long as the learning rate says.

    The loss must be the mean negative log-likelihood. What is fitted is
    `p(w) exp(-rho N loss(w) / tau)`: at a temperature other than 1 the
    likelihood alone is tempered. `h` is the empirical Fisher information; it
    is the Hessian where the model has the true noise.

    Draws differ between replicas and between the `train_samples` of
    `keras_bdl.Model.compile`. They are a function of (seed, iteration,
    replica, draw), so that a run resumed from a file continues exactly. The
    model is at the means whenever a step is over; `compile(samples=...)`,
    `keras_bdl.predict` and others draw from the posterior.

    Args:
        learning_rate: Float or schedule. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            counted by `keras_bdl.Model.fit`.
        prior_precision: delta, of the prior `N(0, 1/delta)` of every weight.
            Defaults to `1.0`.
        beta_1: Decay of the momentum. Defaults to `0.9`.
        beta_2: Decay of the curvature, near 1 for a long memory; a paper that
            prints the weight of the new value means 1 less this. Defaults to
            `0.999`.
        temperature: tau, float or schedule. Defaults to `1.0`.
        augmentation_factor: rho, how many times as many examples the data
            seems to have through its augmentation. Defaults to `1.0`.
        damping: Positive where weights are excluded from inference. It makes
            steps shorter and is no part of the posterior. Defaults to `1e-3`.
        initial_curvature: s at the beginning, or `"first_batch"`: the first
            step is one at the means, and `s = h`. Defaults to
            `"first_batch"`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables without prior and noise. Defaults to
            `("BatchNormalization",)`.
        curvature_every: Steps from one (3) to the next; the others cost about
            as much as those of Adam. Defaults to `1`.
        fallback: Whether layers that `keras_bdl.curvature` has no rule for
            are differentiated example by example, which is slow. Defaults to
            `False`, where they are an error.
        seed: Seed of the draws. Defaults to `0`.
        name: Name of the optimizer. Defaults to `"vogn"`.
        **kwargs: Options of `keras.optimizers.Optimizer`. Those that change
            the posterior, such as weight decay, are refused.

    Example:

    ```python
    model = keras_bdl.Model(net.inputs, net.outputs)
    model.compile(keras_bdl.VOGN(prior_precision=50.0), loss=loss)
    model.fit(x, y, epochs=50)
    prediction = keras_bdl.predict(model, x_test)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), algorithm 1, with beta_2 the
          other way round, squares of whole examples, and tau in (1) rather
          than in (3), where it made the posterior precision wrong
    """

    def __init__(
        self,
        learning_rate=1e-3,
        dataset_size: int | None = None,
        prior_precision: float = 1.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        temperature=1.0,
        augmentation_factor: float = 1.0,
        damping: float = 1e-3,
        initial_curvature="first_batch",
        exclude_from_inference=("BatchNormalization",),
        curvature_every: int = 1,
        fallback: bool = False,
        seed: int = 0,
        name: str = "vogn",
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            dataset_size,
            prior_precision,
            beta_1,
            beta_2,
            temperature,
            augmentation_factor,
            initial_curvature,
            exclude_from_inference,
            seed,
            name,
            kwargs,
        )
        check_number("damping", damping, at_least=0.0)
        if initial_curvature != "first_batch":
            check_number("initial_curvature", initial_curvature, at_least=0.0)
        check_number("curvature_every", curvature_every, at_least=1, integer=1)
        self.damping = damping
        self.curvature_every = curvature_every
        self.fallback = fallback

    def check(self, variables):
        """Refuses excluded weights without damping, which would divide by 0."""
        super().check(variables)
        excluded = [v.path for v in variables if self.is_excluded(v)]
        if excluded and not self.damping:
            raise ValueError(
                "`damping` must be positive where weights are excluded from "
                "inference, since they have no prior to keep their steps "
                f"finite. Received: damping={self.damping} and the excluded "
                f"{excluded}"
            )

    def look(self, model, data, draw, loss_scale):
        """Returns loss, outputs and pairs of g and h."""
        found = self.captured_step(model, data, draw, loss_scale)
        pairs = list(zip(found.gradients, found.squares, strict=True))
        return found.loss, found.y_pred, pairs

    def captured_step(
        self, model, data, draw, loss_scale, statistics: str = "squares"
    ):
        """Returns a `keras_bdl.curvature.Step`.

        Args:
            model: See `look`, as all others.
            data: See there.
            draw: See there.
            loss_scale: See there.
            statistics: Which curvature. Defaults to `"squares"`.
        """
        x, y, sample_weight = data
        return curvature.step(
            model,
            x,
            y,
            sample_weight,
            values=draw,
            loss_scale=loss_scale,
            statistics=statistics,
            due=None if self.curvature_every == 1 else self._is_due(),
            fallback=self.fallback,
        )

    def update_step(self, gradient, variable, learning_rate):
        """Moves one variable by (2) to (4)."""
        g, h = (ops.cast(part, variable.dtype) for part in gradient)
        index = _keras.variable_index(self, variable)
        momentum, curvature = self._momenta[index], self._curvatures[index]
        prior = self.scaled_prior(variable)
        decay, weight = self.curvature_weights(variable.dtype)
        m = self.beta_1 * momentum + g + prior * variable  # (2)
        s = decay * curvature + weight * h  # (3)
        step = ops.cast(learning_rate, variable.dtype) * m
        self.assign(momentum, m)
        self.assign(curvature, s)
        self.assign_sub(variable, step / (s + (prior + self.damping)))  # (4)

    def _is_due(self):
        return ops.equal(ops.mod(self.iterations, self.curvature_every), 0)

    def curvature_weights(self, dtype):
        """Returns what the old and the new curvature are multiplied by.

        Args:
            dtype: What they are to be.
        """
        decay = ops.convert_to_tensor(self.beta_2, dtype)
        weight = ops.convert_to_tensor(1.0 - self.beta_2, dtype)
        if self.initial_curvature == "first_batch":
            decay = ops.where(self.is_first(), 0.0, decay)
            weight = ops.where(self.is_first(), 1.0, weight)
        if self.curvature_every > 1:
            # Where it is not due, the new one is zero.
            decay = ops.where(self._is_due(), decay, 1.0)
        return decay, weight

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "damping": self.damping,
            "curvature_every": self.curvature_every,
            "fallback": self.fallback,
        }
