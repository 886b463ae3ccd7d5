"""Stochastic gradient Nose-Hoover thermostat."""

from typing import Any

import keras

from keras_bdl.optimizers._momentum_sampler import MomentumSampler


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGNHT(MomentumSampler):
    """Stochastic gradient Nose-Hoover thermostat: draws posterior samples.

    Use SGNHT if the noise of the minibatch gradients is large and friction
    should always be present. `keras_bdl.ATMC` adds less friction.

    Every weight has a momentum p and a thermostat xi, which removes the energy
    that noisy minibatch gradients add. The friction alpha, which comes with
    noise, is the constant D that the argument `friction` sets,

        alpha = D                                                         (1)

    `keras_bdl.optimizers.hyperbolic_momentum` has the equations by which p, the
    weight and xi move.

    The loss must be the mean negative log-likelihood; the target is
    `exp(-U/T)`, `U = N loss - log prior`. At `T = 1` the target is the
    posterior.

    The noise is a function of (seed, variable, iteration). All replicas use the
    same noise, and a chain resumed from a file or a checkpoint continues
    exactly if its data do: see `keras_bdl.datasets.EpochCounter`. Several
    chains need seeds of their own: call `keras.utils.set_random_seed` with
    another number before you make the model and the optimizer of each.

    Example:

    ```python
    model.compile(keras_bdl.SGNHT(learning_rate=1e-3), loss=loss)
    model.fit(train, epochs=2, verbose=0)
    ```

    Reference:
        - [Ding et al., 2014](https://papers.nips.cc/paper/5592), with one
          thermostat per weight
    """

    def injected_friction(self, thermostat: Any) -> float:
        """Returns the friction alpha, (1)."""
        return self._friction_rate  # (1)
