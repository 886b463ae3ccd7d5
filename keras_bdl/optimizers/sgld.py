"""Stochastic gradient Langevin dynamics."""

import keras
from keras import ops

from keras_bdl.optimizers.sampler import Sampler


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGLD(Sampler):
    """Stochastic gradient Langevin dynamics: draws samples.

    The learning rate keeps the meaning it has for SGD, a step on the mean
    loss. With `grad U` the gradient of `U = N loss - log prior`,

        w <- w - lr/N grad U + sqrt(2 lr T/N) eps,   eps ~ N(0, I)        (1)

    The loss must be the mean negative log-likelihood; the target is
    `exp(-U/T)`. At `T = 1` it is the posterior.

    Noise is a function of (seed, variable, iteration): replicas share it, and
    a chain resumed from a file or a checkpoint continues exactly.

    Args:
        learning_rate: Float or schedule. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            counted by `keras_bdl.Model.fit`.
        temperature: T, float or schedule; `0` is SGD. Likelihood and prior
            are tempered alike. Defaults to `1.0`.
        prior: Prior of every variable without a regularizer: one of
            `keras_bdl.priors` or a distribution of TensorFlow Probability.
            Defaults to `None`, flat.
        seed: Seed of the noise. Defaults to `0`.
        name: Name of the optimizer. Defaults to `"sgld"`.
        **kwargs: `loss_scale_factor` of `keras.optimizers.Optimizer`. Options
            that change the target, such as weight decay, are refused.

    Example:

    ```python
    model.compile(keras_bdl.SGLD(dataset_size=50_000), loss=loss)
    ```

    Reference:
        - [Welling and Teh, 2011](
          https://www.stats.ox.ac.uk/~teh/research/compstats/WelTeh2011a.pdf),
          eq. 4, with lr = eps N / 2
    """

    def __init__(
        self,
        learning_rate=1e-3,
        dataset_size: int | None = None,
        temperature=1.0,
        prior=None,
        seed: int = 0,
        name: str = "sgld",
        **kwargs,
    ):
        super().__init__(
            learning_rate, dataset_size, temperature, prior, seed, name, kwargs
        )

    def update_step(self, gradient, variable, learning_rate):
        """Applies (1) to one variable."""
        rate = ops.cast(learning_rate, "float32") / self.dataset_size.value()
        move = (  # (1)
            ops.sqrt(2.0 * rate * self.temperature_now()) * self.noise(variable)
            - rate * self.energy_gradient(gradient, variable)
        )
        self.assign_add(variable, ops.cast(move, variable.dtype))
