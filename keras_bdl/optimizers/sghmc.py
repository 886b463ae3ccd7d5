"""Stochastic gradient Hamiltonian Monte Carlo."""

from typing import Any

import keras

from keras_bdl.optimizers.momentum_sampler import MomentumSampler


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGHMC(MomentumSampler):
    """Stochastic gradient Hamiltonian Monte Carlo: draws posterior samples.

    Use SGHMC if the noise of the minibatch gradients is small. SGHMC does not
    remove that noise: samples come out too wide, the more so the larger the
    step. `keras_bdl.SGNHT` and `keras_bdl.ATMC` remove it.

    Every weight has a momentum p, with constant friction and its noise,

        alpha = D,  xi = 0                                                (1)

    `keras_bdl.optimizers.momentum_steps` has the equations by which p and the
    weight move.

    The loss must be the mean negative log-likelihood; the target is
    `exp(-U/T)`, `U = N loss - log prior`. At `T = 1` the target is the
    posterior.

    The noise is a function of (seed, variable, iteration): replicas share it,
    and a chain resumed from a file or a checkpoint continues exactly.

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
        """Returns (1)."""
        return self._friction_rate  # (1)
