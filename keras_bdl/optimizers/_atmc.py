"""Adaptive thermostat Monte Carlo."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.optimizers._momentum_sampler import MomentumSampler


@keras.saving.register_keras_serializable(package="keras_bdl")
class ATMC(MomentumSampler):
    """Adaptive thermostat Monte Carlo: draws posterior samples.

    ATMC is the sampler to start with: a speed limit keeps large networks
    stable, and a thermostat removes the noise of the minibatch gradients.

    Every weight has a momentum p and a thermostat xi, which measures the
    gradient noise in units of friction. The argument `friction` sets the
    friction D. ATMC adds, together with noise, only the part alpha of D that
    the thermostat does not already provide,

        alpha = max(D - xi, 0)                                            (1)

    `keras_bdl.optimizers.hyperbolic_momentum` has the equations by which p, the
    weight and xi move. ATMC uses the thermostat that belongs to hyperbolic
    momentum. The paper prints the thermostat of Gaussian momentum, which makes
    samples too narrow.

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
    model.compile(keras_bdl.ATMC(learning_rate=1e-3), loss=loss)
    samples = keras_bdl.callbacks.SampleCollector(every=1)
    model.fit(train, epochs=3, verbose=0, callbacks=[samples])
    prediction = keras_bdl.predict(model, x_test, samples.posterior, verbose=0)
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), algorithm 1
    """

    def injected_friction(self, thermostat: Any) -> tf.Tensor:
        """Returns the friction alpha, (1)."""
        return ops.maximum(self._friction_rate - thermostat, 0.0)  # (1)
