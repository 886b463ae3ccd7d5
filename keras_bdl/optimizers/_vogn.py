"""Variational online Gauss-Newton, with noise (VOGN) and without (OGN)."""

from typing import Any
from typing import Literal
from typing import Unpack

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._arguments import check_number
from keras_bdl._backend import call_shared
from keras_bdl.curvature._batch_curvature import CurvatureStep
from keras_bdl.curvature._batch_curvature import curvature_step
from keras_bdl.curvature._capture import check_fallback
from keras_bdl.optimizers._natural_gradient import NaturalGradient
from keras_bdl.optimizers._natural_gradient import NaturalGradientOptions


@keras.saving.register_keras_serializable(package="keras_bdl")
class VOGN(NaturalGradient):
    """Variational online Gauss-Newton: fits a Gaussian to the posterior.

    VOGN trains the weights of an ordinary model. Use VOGN if every layer has a
    rule in `keras_bdl.curvature`, which computes the gradients of single
    examples; `keras_bdl.IVON` accepts any layer. A step takes about 1.5 times
    as long as a step of Adam. In convolutional networks, `curvature_every`
    makes the average step shorter.

    The weights are the means mu of independent Gaussians. With N examples,
    augmentation factor rho, temperature tau, prior precision delta and
    `delta_t = tau delta / (rho N)`, each step draws samples of the weights,

        w = mu + eps sqrt(tau / (rho N (s + delta_t))),  eps ~ N(0, I)    (1)

    At the samples, VOGN computes the gradient of each example. Over examples,
    samples and replicas, g is the mean of these gradients and h is the mean of
    their squares. If N counts positions, h is (3) of
    `keras_bdl.extend.curvature_step`.

        m <- beta_1 m + g + delta_t mu                                    (2)
        s <- beta_2 s + (1 - beta_2) h                                    (3)
        mu <- mu - a m / (s + delta_t + damping)                          (4)

    With s_0 the `initial_curvature`, a is the learning rate times
    `s_0 + delta_t`, so the first steps are like steps of SGD with the momentum
    `beta_1`. (2) has no factor `1 - beta_1` before g. While gradients stay the
    same, steps are `1 / (1 - beta_1)` times as long as with this factor.

    The loss must be the mean negative log-likelihood. The posterior is
    `p(w) exp(-rho N loss(w) / tau)`: the temperature tau changes only the
    likelihood, and the prior stays as it is. `h` is the empirical Fisher
    information. Its expectation equals that of the Hessian if the model
    predicts the true distribution of the targets.

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
        beta_2: Decay of the curvature, near 1 for a long memory. Some papers
            print `1 - beta_2`, the weight of the new value. Defaults to
            `0.999`.
        initial_curvature: s of every weight before the first step, or
            `"first_batch"`: the first step runs at the means, without noise,
            and sets s. Most weights then start with a curvature near zero, so
            samples are as wide as the prior and the network learns slowly.
            Defaults to `None`: `12 / sqrt(N)`, or
            `min(1500 / N, 2)` if that is larger.
        damping: Makes steps shorter and is not part of the posterior. The
            damping must be positive if weights are excluded from inference.
            Defaults to `1e-3`.
        curvature_every: Number of steps from one update (3) to the next. The
            steps between save the work of the curvature, but not the draw.
            Defaults to `1`.
        fallback: What to do with layers that have no rule. `True`
            differentiates them separately for each example, which is slow and
            takes memory. `"auto"` does so for small layers, with a warning, and
            raises an error for large ones. `False` raises an error. Defaults to
            `"auto"`.
        **options: Those of `keras_bdl.extend.NaturalGradientOptions`.

    Example:

    ```python
    model.compile(keras_bdl.VOGN(prior_precision=50.0), loss=loss)
    model.fit(x, y, epochs=2, verbose=0)
    prediction = keras_bdl.predict(model, x_test, verbose=0)
    ```

    The paper's VOGN, for ResNet-18 on CIFAR-10 with random crops and flips in
    batches of 256, has other settings than the defaults. Eight devices draw
    five samples each. On R devices, `train_samples` is 40 / R:

    ```python
    epoch = 196  # steps
    rate = keras.optimizers.schedules.PiecewiseConstantDecay(
        [80 * epoch, 120 * epoch], [1e-4, 1e-5, 1e-6]
    )
    papers = keras_bdl.VOGN(
        rate,
        prior_precision=50.0,
        augmentation_factor=10.0,
        beta_1=0.9,
        beta_2=0.001,
        damping=1e-3,
        initial_curvature="first_batch",
    )
    model.compile(papers, loss, train_samples=40, samples=10)
    ```

    `examples/papers` has the settings for all networks of the paper.

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), algorithm 1, with three changes:
          beta_2 is their 1 - beta_2, h squares the gradients of whole
          examples, and tau is in (1). In (3), as printed, tau makes the
          posterior precision wrong
    """

    def __init__(
        self,
        learning_rate: FloatOrSchedule = 0.05,
        dataset_size: int | None = None,
        *,
        beta_2: float = 0.999,
        initial_curvature: float | Literal["first_batch"] | None = None,
        damping: float = 1e-3,
        curvature_every: int = 1,
        fallback: bool | Literal["auto"] = "auto",
        **options: Unpack[NaturalGradientOptions],
    ):
        super().__init__(
            learning_rate,
            dataset_size,
            beta_2=beta_2,
            initial_curvature=initial_curvature,
            **options,
        )
        if initial_curvature not in (None, "first_batch"):
            check_number("initial_curvature", initial_curvature, at_least=0.0)
        check_number("damping", damping, at_least=0.0)
        check_number(
            "curvature_every", curvature_every, at_least=1, integer=True
        )
        self.damping = damping
        self.curvature_every = curvature_every
        self.fallback = check_fallback(fallback)

    def check(self, variables: list) -> None:
        """Raises an error if weights are excluded and `damping` is 0."""
        super().check(variables)
        excluded = [v.path for v in variables if self.is_excluded(v)]
        if excluded and not self.damping:
            raise ValueError(
                "`damping` must be positive if weights are excluded from "
                "inference: they have no prior that keeps their steps finite. "
                f"Received: damping={self.damping} and the excluded {excluded}"
            )

    def batch_statistics(
        self, model: keras.Model, data: Any, draw: Any, loss_scale: Any
    ) -> tuple:
        """Returns loss, outputs and a pair (g, h) for each variable."""
        found = self.captured_step(model, data, draw, loss_scale)
        pairs = list(zip(found.gradients, found.squares, strict=True))
        return found.loss, found.y_pred, pairs

    def captured_step(
        self,
        model: keras.Model,
        data: Any,
        draw: Any,
        loss_scale: Any,
        **options: Any,
    ) -> CurvatureStep:
        """Returns gradients and curvature of a batch at one sample.

        `options` are those of `keras_bdl.extend.curvature_step`.
        """
        return curvature_step(
            model,
            data,
            values=draw,
            loss_scale=loss_scale,
            due=None if self.curvature_every == 1 else self.is_due(),
            fallback=self.fallback,
            observations=model.observations,
            counts_labels=True,
            **options,
        )

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Moves one variable by (2) to (4)."""
        g, h = (ops.cast(part, variable.dtype) for part in gradient)
        index = _keras.variable_index(self, variable)
        momentum, curvature = self._momenta[index], self._curvatures[index]
        m, s, mu = call_shared(
            self._new_state,
            *(g, h, momentum, curvature, variable, learning_rate),
            self.is_excluded(variable),
            compiled=True,
        )
        self.assign(momentum, m)
        self.assign(curvature, s)
        self.assign(variable, mu)

    def _new_state(
        self,
        g: Any,
        h: Any,
        momentum: Any,
        curvature: Any,
        mu: Any,
        learning_rate: Any,
        excluded: Any,
    ) -> Any:
        """Returns m, s and mu."""
        prior = self.prior_term(excluded, g.dtype)
        decay, weight = self.curvature_weights(g.dtype)
        m = self.beta_1 * momentum + g + prior * mu  # (2)
        s = decay * curvature + weight * h  # (3)
        step = self.step_size(learning_rate, prior) * m
        return m, s, mu - step / (s + (prior + self.damping))  # (4)

    def is_due(self) -> Any:
        """Returns whether this step updates the curvature."""
        return ops.equal(ops.mod(self.iterations, self.curvature_every), 0)

    def curvature_weights(self, dtype: Any) -> tuple:
        """Returns the factors of the old and the new curvature in (3)."""
        decay = ops.convert_to_tensor(self.beta_2, dtype)
        weight = ops.convert_to_tensor(1.0 - self.beta_2, dtype)
        if self.initial_curvature == "first_batch":
            decay = ops.where(self.is_first(), 0.0, decay)
            weight = ops.where(self.is_first(), 1.0, weight)
        if self.curvature_every > 1:
            # In other steps the new curvature is zero.
            decay = ops.where(self.is_due(), decay, 1.0)
        return decay, weight

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "damping": self.damping,
            "curvature_every": self.curvature_every,
            "fallback": self.fallback,
        }


@keras.saving.register_keras_serializable(package="keras_bdl")
class OGN(VOGN):
    """Online Gauss-Newton: `VOGN` without noise in the weights.

    Use OGN first if `VOGN` does not train. Both classes take the same
    arguments: tune the arguments with `OGN`, then change the class to `VOGN`.

    Training uses the means, `w = mu`. Everything else is as in `VOGN`.

    `keras_bdl.predict` uses the means, the network that was trained. Samples
    are often much worse, because training used the means alone. To use samples
    anyway, pass `posterior=keras_bdl.posterior_of(model)` to
    `keras_bdl.predict`. For `model.evaluate` and `model.predict`, compile with
    `samples`.

    Args:
        **options: Those of `keras_bdl.VOGN`, and those of
            `keras_bdl.extend.NaturalGradientOptions`.

    Example:

    ```python
    model.compile(keras_bdl.OGN(prior_precision=50.0), loss=loss)
    model.fit(x, y, epochs=2, verbose=0)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), eq. 3
    """

    noisy_training = False
