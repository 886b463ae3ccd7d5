"""Improved variational online Newton."""

from typing import Any
from typing import Unpack

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._arguments import check_number
from keras_bdl._backend import call_shared
from keras_bdl._backend import grad
from keras_bdl._backend import tensor
from keras_bdl.curvature._capture import WeightScope
from keras_bdl.optimizers._natural_gradient import NaturalGradient
from keras_bdl.optimizers._natural_gradient import NaturalGradientOptions


@keras.saving.register_keras_serializable(package="keras_bdl")
class IVON(NaturalGradient):
    """Improved variational online Newton: fits a Gaussian to the posterior.

    IVON trains the weights of an ordinary model. Try IVON first: it accepts
    any layer, because it needs no gradients of single examples. For a
    convolutional network, a step takes about as long as a step of Adam.

    The weights are the means mu of independent Gaussians. IVON estimates their
    curvature h from the way in which the gradient g changes between samples.
    With N examples, augmentation factor rho, temperature tau, prior precision
    delta and `delta_t = tau delta / (rho N)`,

        sigma^2 = tau / (rho N (h + delta_t)),  w = mu + sigma eps        (1)
        d = h - mean(g eps / sigma)                                       (2)
        h <- beta_2 h + (1 - beta_2) (h - d)
             + (1 - beta_2)^2 d^2 / (2 (h + delta_t))                     (3)
        m <- beta_1 m + (1 - beta_1) g,  m_hat = m / (1 - beta_1^t)       (4)
        mu <- mu - a clip((m_hat + delta_t mu) / (h + delta_t))           (5)

    The right side of (3) has the old `h`, which keeps `h + delta_t` positive;
    (5) has the new `h`. With h_0 the `initial_curvature`, a is the learning
    rate times `(h_0 + delta_t) (1 - beta_1^t) / (1 - beta_1)`: the steps are
    as long as those of SGD with the momentum beta_1 and the same learning
    rate, also the first ones. The mean in (2) is over samples and replicas.

    The loss must be the mean negative log-likelihood. The posterior is
    `p(w) exp(-rho N loss(w) / tau)`: the temperature tau changes only the
    likelihood, and the prior stays as it is. `h` estimates the mean of the
    Hessian over the samples. Excluded weights move as in SGD with the momentum
    of (4).

    Each replica, and each of the `train_samples` of
    `keras_bdl.Model.compile`, has its own sample. A sample is a function of
    (seed, iteration, replica, index), so a run resumed from a file continues
    exactly, with data in the same order. Between steps the weights of the
    model are the means; `compile(samples=...)` and `keras_bdl.predict` use
    posterior samples.

    Args:
        learning_rate: Float or schedule. Defaults to `0.05`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        beta_2: Decay of the curvature. A single estimate of the curvature is
            nearly all noise, so the average needs a long memory. Defaults to
            `0.99999`.
        initial_curvature: h_0, positive. A smaller value makes the first
            samples wider. Defaults to `None`: `12 / sqrt(N)`, or
            `min(1500 / N, 2)` if that is larger.
        clip_radius: Largest absolute value of the clipped term in (5).
            Defaults to `None`: no limit.
        **options: Those of `keras_bdl.extend.NaturalGradientOptions`.

    Example:

    ```python
    model.compile(keras_bdl.IVON(), loss=loss)
    model.fit(x, y, epochs=2, verbose=0)
    prediction = keras_bdl.predict(model, x_test, verbose=0)
    ```

    Reference:
        - Shen et al., [Variational Learning is Effective for Large Deep
          Networks](https://arxiv.org/abs/2402.17641), algorithm 1
    """

    needs_scores = True

    def __init__(
        self,
        learning_rate: FloatOrSchedule = 0.05,
        dataset_size: int | None = None,
        *,
        beta_2: float = 0.99999,
        initial_curvature: float | None = None,
        clip_radius: float | None = None,
        **options: Unpack[NaturalGradientOptions],
    ):
        if initial_curvature is not None:
            check_number("initial_curvature", initial_curvature, above=0.0)
        super().__init__(
            learning_rate,
            dataset_size,
            beta_2=beta_2,
            initial_curvature=initial_curvature,
            **options,
        )
        if clip_radius is not None:
            check_number("clip_radius", clip_radius, above=0.0)
        self.clip_radius = clip_radius

    def batch_statistics(
        self, model: keras.Model, data: Any, draw: Any, loss_scale: Any
    ) -> tuple:
        """Returns loss, outputs, and g and `g eps / sigma` of each variable.

        An excluded variable has g alone.
        """
        x, y, sample_weight = data
        values, scores = draw

        def scaled_loss(*values: Any) -> Any:
            with WeightScope(model.trainable_variables, list(values)):
                y_pred = _keras.call_with_training(model, x, training=True)
                loss = _keras.compute_loss(
                    model, x, y, y_pred, sample_weight, training=True
                )
            scaled = loss if loss_scale is None else loss * loss_scale
            return scaled, (loss, y_pred)

        gradients, (loss, y_pred) = grad(scaled_loss, values, has_aux=True)
        found = []
        for g, score in zip(gradients, scores, strict=True):
            if loss_scale is not None:
                g = g / ops.cast(loss_scale, g.dtype)
            found.append((g,) if score is None else (g, g * score))
        return loss, y_pred, found

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Moves one variable by (3) to (5)."""
        index = _keras.variable_index(self, variable)
        g, estimate, curvature = gradient[0], None, None
        if not self.is_excluded(variable):
            estimate, curvature = gradient[1], self._curvatures[index]
        m, h, mu = call_shared(
            self._new_state,
            ops.cast(g, variable.dtype),
            *(estimate, self._momenta[index], curvature, variable),
            learning_rate,
            compiled=True,
        )
        self.assign(self._momenta[index], m)
        if curvature is not None:
            self.assign(curvature, h)
        self.assign(variable, mu)

    def _new_state(
        self,
        g: Any,
        estimate: Any,
        momentum: Any,
        curvature: Any,
        mu: Any,
        learning_rate: Any,
    ) -> Any:
        """Returns m, h and mu; h is `None` for an excluded variable."""
        time = ops.cast(self.iterations + 1, g.dtype)
        bias = 1.0 - ops.power(ops.cast(self.beta_1, g.dtype), time)
        m = self.beta_1 * momentum + (1.0 - self.beta_1) * g  # (4)
        rate = ops.cast(learning_rate, g.dtype)
        if self.rescale_learning_rate:
            rate = rate * bias / (1.0 - self.beta_1)  # as SGD adds up
        if curvature is None:
            return m, None, mu - rate / bias * m
        prior = self.prior_term(excluded=False, dtype=g.dtype)
        h = tensor(curvature)
        change = (1.0 - self.beta_2) * (ops.cast(estimate, h.dtype) - h)
        h = h + change + ops.square(change) / (2.0 * (h + prior))  # (3)
        direction = (m / bias + prior * mu) / (h + prior)
        if self.clip_radius is not None:
            direction = ops.clip(direction, -self.clip_radius, self.clip_radius)
        mu = mu - self.step_size(rate, prior) * direction  # (5)
        return m, h, mu

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {**super().get_config(), "clip_radius": self.clip_radius}
