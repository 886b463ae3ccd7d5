"""Stochastic gradient Langevin dynamics."""

from typing import Any

import keras
from keras import ops

from keras_bdl._backend import call_shared
from keras_bdl._random._noise import normal_numbers
from keras_bdl.optimizers._sampler import Sampler


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGLD(Sampler):
    """Stochastic gradient Langevin dynamics: draws posterior samples.

    Use SGLD as a simple baseline. SGLD has no momentum and needs many steps
    between independent samples.

    The learning rate means the same as in SGD, a step on the mean loss. With
    `grad U` the gradient of `U = N loss - log prior`,

        w <- w - lr/N grad U + sqrt(2 lr T/N) eps,   eps ~ N(0, I)        (1)

    The loss must be the mean negative log-likelihood; the target is
    `exp(-U/T)`. At `T = 1` the target is the posterior.

    The noise is a function of (seed, variable, iteration). All replicas use the
    same noise, and a chain resumed from a file or a checkpoint continues
    exactly if its data do: see `keras_bdl.datasets.EpochCounter`. Several
    chains need seeds of their own: call `keras.utils.set_random_seed` with
    another number before you make the model and the optimizer of each.

    Args:
        learning_rate: Float or schedule, the step size. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        **options: Those of `keras_bdl.extend.SamplerOptions`.

    Example:

    ```python
    model.compile(keras_bdl.SGLD(learning_rate=1e-2), loss=loss)
    model.fit(train, epochs=2, verbose=0)
    ```

    Reference:
        - [Welling and Teh, 2011](
          https://www.stats.ox.ac.uk/~teh/research/compstats/WelTeh2011a.pdf),
          eq. 4, with lr = eps N / 2
    """

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Moves one variable by one step."""
        move = call_shared(
            self._move,
            self.energy_gradient(gradient, variable),
            self.random_bits(variable),
            learning_rate,
            compiled=True,
        )
        self.assign_add(variable, ops.cast(move, variable.dtype))

    def _move(self, gradient: Any, bits: Any, learning_rate: Any) -> Any:
        """Returns the right side of (1)."""
        rate = ops.cast(learning_rate, "float32") / self.dataset_size.value()
        stddev = ops.sqrt(2.0 * rate * self.temperature_now())
        return stddev * normal_numbers(bits) - rate * gradient
