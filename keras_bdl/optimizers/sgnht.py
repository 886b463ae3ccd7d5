"""Stochastic gradient Nose-Hoover thermostat."""

import keras

from keras_bdl.optimizers.momentum_sampler import MomentumSampler


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGNHT(MomentumSampler):
    """Stochastic gradient Nose-Hoover thermostat: draws samples.

    Every weight has a momentum p and a thermostat xi, which takes out the
    heat that the noise of the minibatch gradients brings in. Friction with
    its noise is always added,

        alpha = D                                                         (1)

    and p, the weight and xi move as `keras_bdl.optimizers.integrators` says.

    The loss must be the mean negative log-likelihood; the target is
    `exp(-U/T)`, `U = N loss - log prior`. At `T = 1` it is the posterior.

    Noise is a function of (seed, variable, iteration): replicas share it, and
    a chain resumed from a file or a checkpoint continues exactly.

    Args:
        learning_rate: Float or schedule, the step size h. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            counted by `keras_bdl.Model.fit`.
        average_speed: Distance that a weight moves in one step, in the mean
            square and without a speed limit; sets the mass,
            `m = (average_speed / h0)^-2`. Defaults to `3e-4`.
        max_speed: Largest distance, sets the speed limit
            `c = max_speed / h0`; `None` for Gaussian momentum. Defaults to
            `1e-3`.
        friction: Share of its momentum that a weight keeps over one step,
            sets `D = -log(friction) / h0`. Defaults to `0.9`.
        temperature: T, float or schedule; `0` is descent without noise.
            Likelihood and prior are tempered alike. Defaults to `1.0`.
        prior: Prior of every variable without a regularizer: one of
            `keras_bdl.priors` or a distribution of TensorFlow Probability.
            Defaults to `None`, flat.
        seed: Seed of the noise. Defaults to `0`.
        initial_learning_rate: h0. Mass, speed limit and friction are set by
            it and stay when a schedule moves h. Defaults to `None`, h at the
            first step.
        precondition_every: Steps after which the mass of each variable is set
            anew from the mean square of its gradients, so that all move at
            their own scale. Defaults to `None`, the same mass for all.
        precondition_until: The last step at which masses may change, such as
            the end of the burn-in; samples are exact from there on. Defaults
            to `None`, never.
        name: Name of the optimizer. Defaults to `"sgnht"`.
        **kwargs: `loss_scale_factor` of `keras.optimizers.Optimizer`. Options
            that change the target, such as weight decay, are refused.

    Example:

    ```python
    model.compile(keras_bdl.SGNHT(dataset_size=50_000), loss=loss)
    ```

    Reference:
        - [Ding et al., 2014](https://papers.nips.cc/paper/5592), with one
          thermostat a weight
    """

    def __init__(
        self,
        learning_rate=1e-3,
        dataset_size: int | None = None,
        average_speed: float = 3e-4,
        max_speed: float | None = 1e-3,
        friction: float = 0.9,
        temperature=1.0,
        prior=None,
        seed: int = 0,
        initial_learning_rate: float | None = None,
        precondition_every: int | None = None,
        precondition_until: int | None = None,
        name: str = "sgnht",
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            dataset_size,
            average_speed,
            max_speed,
            friction,
            temperature,
            prior,
            seed,
            initial_learning_rate,
            precondition_every,
            precondition_until,
            name,
            kwargs,
        )

    def injected_friction(self, thermostat):
        """Returns (1)."""
        return self._friction_rate  # (1)
