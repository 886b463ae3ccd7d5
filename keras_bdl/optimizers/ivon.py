"""Improved variational online Newton."""

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.arguments import check_number
from keras_bdl.curvature.weight_scope import WeightScope
from keras_bdl.optimizers.natural_gradient import NaturalGradient


@keras.saving.register_keras_serializable(package="keras_bdl")
class IVON(NaturalGradient):
    """Improved variational online Newton: fits a Gaussian to the posterior.

    An optimizer of the weights of an ordinary model, which become the means
    mu of independent Gaussians. It needs no gradients of single examples: the
    curvature comes from how the gradient g changes with the draw. With N
    examples, augmentation factor rho, temperature tau, prior precision delta
    and `delta_t = tau delta / (rho N)`,

        sigma^2 = tau / (rho N (h + delta_t)),  w = mu + sigma eps        (1)
        d = h - mean(g eps / sigma)                                       (2)
        h <- beta_2 h + (1 - beta_2) (h - d)
             + (1 - beta_2)^2 d^2 / (2 (h + delta_t))                     (3)
        m <- beta_1 m + (1 - beta_1) g,  m_hat = m / (1 - beta_1^t)       (4)
        mu <- mu - a clip((m_hat + delta_t mu) / (h + delta_t))           (5)

    with the old `h` on the right of (3), which keeps `h + delta_t` positive,
    and the new one in (5). With h_0 the `initial_curvature`, a is the
    learning rate times `h_0 + delta_t`, so that the first steps are like
    those of SGD. The mean is over draws and replicas.

    The loss must be the mean negative log-likelihood. What is fitted is
    `p(w) exp(-rho N loss(w) / tau)`: at a temperature other than 1 the
    likelihood alone is tempered. `h` is an estimate of the mean of the
    Hessian over the draws. Weights that are excluded move as by SGD with the
    momentum of (4).

    Draws differ between replicas and between the `train_samples` of
    `keras_bdl.Model.compile`. They are a function of (seed, iteration,
    replica, draw), so that a run resumed from a file continues exactly. The
    model is at the means whenever a step is over; `compile(samples=...)`,
    `keras_bdl.predict` and others draw from the posterior.

    Args:
        learning_rate: Float or schedule. Defaults to `0.1`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            counted by `keras_bdl.Model.fit`.
        prior_precision: delta, of the prior `N(0, 1/delta)` of every weight.
            Defaults to `1.0`.
        beta_1: Decay of the momentum. Defaults to `0.9`.
        beta_2: Decay of the curvature. One estimate of it is nearly all
            noise: shorter memories than the default leave much of it.
            Defaults to `0.99999`.
        temperature: tau, float or schedule. Defaults to `1.0`.
        augmentation_factor: rho, how many times as many examples the data
            seems to have through its augmentation. Defaults to `1.0`.
        initial_curvature: h_0, positive; the smaller, the wider the first
            draws. Defaults to `1.0`.
        clip_radius: Largest absolute value of what is clipped in (5).
            Defaults to `None`, no limit.
        rescale_learning_rate: Whether a is as said above; otherwise it is
            the learning rate. Defaults to `True`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables without prior and noise. Defaults to
            `("BatchNormalization",)`.
        seed: Seed of the draws. Defaults to `0`.
        name: Name of the optimizer. Defaults to `"ivon"`.
        **kwargs: Options of `keras.optimizers.Optimizer`. Those that change
            the posterior, such as weight decay, are refused.

    Example:

    ```python
    model = keras_bdl.Model(net.inputs, net.outputs)
    model.compile(keras_bdl.IVON(initial_curvature=0.1), loss=loss)
    model.fit(x, y, epochs=50)
    prediction = keras_bdl.predict(model, x_test)
    ```

    Reference:
        - Shen et al., [Variational Learning is Effective for Large Deep
          Networks](https://arxiv.org/abs/2402.17641), algorithm 1
    """

    needs_scores = True

    def __init__(
        self,
        learning_rate=0.1,
        dataset_size: int | None = None,
        prior_precision: float = 1.0,
        beta_1: float = 0.9,
        beta_2: float = 0.99999,
        temperature=1.0,
        augmentation_factor: float = 1.0,
        initial_curvature: float = 1.0,
        clip_radius: float | None = None,
        rescale_learning_rate: bool = True,
        exclude_from_inference=("BatchNormalization",),
        seed: int = 0,
        name: str = "ivon",
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
        check_number("initial_curvature", initial_curvature, above=0.0)
        if clip_radius is not None:
            check_number("clip_radius", clip_radius, above=0.0)
        self.clip_radius = clip_radius
        self.rescale_learning_rate = rescale_learning_rate

    def look(self, model, data, draw, loss_scale):
        """Returns loss, outputs and, with noise, pairs of g and (2)'s mean."""
        x, y, sample_weight = data
        values, scores = draw
        with tf.GradientTape() as tape:
            tape.watch(values)
            with WeightScope(model.trainable_variables, values):
                y_pred = model._call_for(x, training=True)
                loss = _keras.compute_loss(
                    model, x, y, y_pred, sample_weight, training=True
                )
            target = loss if loss_scale is None else loss * loss_scale
        gradients = tape.gradient(target, values, unconnected_gradients="zero")
        found = []
        for g, score in zip(gradients, scores, strict=True):
            g = tf.convert_to_tensor(g)
            if loss_scale is not None:
                g = g / ops.cast(loss_scale, g.dtype)
            found.append((g,) if score is None else (g, g * score))
        return loss, y_pred, found

    def update_step(self, gradient, variable, learning_rate):
        """Moves one variable by (3) to (5)."""
        index = _keras.variable_index(self, variable)
        momentum = self._momenta[index]
        g = ops.cast(gradient[0], variable.dtype)
        step = ops.cast(learning_rate, variable.dtype)
        time = ops.cast(self.iterations + 1, variable.dtype)
        bias = 1.0 - ops.power(ops.cast(self.beta_1, variable.dtype), time)
        m = self.beta_1 * momentum + (1.0 - self.beta_1) * g  # (4)
        self.assign(momentum, m)
        if self.is_excluded(variable):
            self.assign_sub(variable, step / bias * m)
            return
        prior = self.scaled_prior(variable)
        h = self._new_curvature(gradient[1], variable, prior)
        self.assign(self._curvatures[index], h)
        direction = (m / bias + prior * variable) / (h + prior)
        if self.clip_radius is not None:
            direction = ops.clip(direction, -self.clip_radius, self.clip_radius)
        if self.rescale_learning_rate:
            step = step * (self.initial_curvature + prior)
        self.assign_sub(variable, step * direction)  # (5)

    def _new_curvature(self, estimate, variable, prior):
        h = self.curvature(variable)
        weight = 1.0 - self.beta_2
        change = weight * (ops.cast(estimate, h.dtype) - h)
        return h + change + ops.square(change) / (2.0 * (h + prior))  # (3)

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "clip_radius": self.clip_radius,
            "rescale_learning_rate": self.rescale_learning_rate,
        }
