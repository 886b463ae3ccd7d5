"""Stochastic gradient Hamiltonian Monte Carlo."""

from typing import Any

import keras

from keras_bdl.optimizers._momentum_sampler import MomentumSampler


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGHMC(MomentumSampler):
    """Stochastic gradient Hamiltonian Monte Carlo: draws posterior samples.

    Use SGHMC if the noise of the minibatch gradients is small. SGHMC does not
    remove this noise, so the samples are too wide, and a larger step makes
    them wider still. `keras_bdl.SGNHT` and `keras_bdl.ATMC` remove the noise.

    Every weight has a momentum p. The friction alpha, which comes with noise,
    is the constant D that the argument `friction` sets, and the thermostat xi
    is off,

        alpha = D,  xi = 0                                                (1)

    `keras_bdl.optimizers.hyperbolic_momentum` has the equations by which p and
    the weight move.

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
    model.compile(keras_bdl.SGHMC(learning_rate=1e-3), loss=loss)
    model.fit(train, epochs=2, verbose=0)
    ```

    Reference:
        - [Chen et al., 2014](https://arxiv.org/abs/1402.4102), eq. 9, with
          no estimate of the gradient noise
    """

    uses_thermostat = False

    def injected_friction(self, thermostat: Any) -> float:
        """Returns the friction alpha, (1)."""
        return self._friction_rate  # (1)
