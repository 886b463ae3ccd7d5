"""What the layers with a distribution over their weights have in common."""

import contextlib
import numbers

import keras
from keras import ops

from keras_bdl import priors
from keras_bdl.layers import random_numbers
from keras_bdl.layers.weight_posterior import WeightPosterior
from keras_bdl.training.annealing import Annealing
from keras_bdl.training.dataset_size import DatasetSize

WEIGHTS = ("kernel", "embeddings")


class Variational:
    """Gives the weights of a Keras layer a distribution.

    A variational layer derives from a subclass of this one, which names the
    `family` of distributions, and from the layer whose weights it draws, in
    this order. That layer must create them by `add_weight`, with the names
    `kernel` or `embeddings`, and `bias`, and read them as attributes of these
    names. Where it does, they are here

        w = mean + softplus(rho) noise                                    (1)

    in training, one draw for all calls of a forward pass, and the mean
    otherwise. In training, the first call adds

        kl_weight KL(q || p) / N                                          (2)

    to the losses, which makes the loss the negative evidence lower bound of
    an example. How the draw enters the output is told by `estimator`:

    - `"weight"`: one draw for the whole batch (of each replica).
    - `"flipout"`: one draw whose signs are changed at random for each
      example. The same expectation, with less variance.
    - `"local"`: for each output its own noise, of the variance that (1) gives
      it. The same expectation for `Dense` on inputs of rank 2, where it has
      the least variance; elsewhere an approximation, since positions that
      share their weights get independent noise.

    Args:
        *args: As of the layer.
        prior: p of each weight: one of `keras_bdl.priors`, a distribution of
            TensorFlow Probability, or one of `keras_bdl.distributions`.
            Defaults to `None`, `keras_bdl.priors.Normal(1.0)`.
        bias_prior: p of the bias. Defaults to `None`, the `prior`.
        variational_bias: Whether the bias has a distribution, too. Defaults
            to `True`.
        estimator: See above. Defaults to `"weight"`.
        rho_initializer: Initializer of rho. Defaults to `None`, -5.
        dataset_size: N, the number of training examples. Defaults to `None`:
            counted by `keras_bdl.Model.fit`.
        seed: Seed of the draws. Defaults to `None`.
        **kwargs: As of the layer; regularizers and constraints are those of
            the means.
    """

    family = None
    estimators = ("weight", "flipout", "local")

    def __init__(
        self,
        *args,
        prior=None,
        bias_prior=None,
        variational_bias: bool = True,
        estimator: str = "weight",
        rho_initializer=None,
        dataset_size: int | None = None,
        seed: int | None = None,
        **kwargs,
    ):
        self._calls = _Calls()
        super().__init__(*args, **kwargs)
        for name in ("lora_rank", "quantization_mode"):
            if getattr(self, name, None) is not None:
                raise ValueError(self._unsupported(name, getattr(self, name)))
        if estimator not in self.estimators:
            raise ValueError(
                f"`estimator` must be one of {self.estimators} for "
                f"`{type(self).__name__}`. Received: estimator={estimator!r}"
            )
        self.prior = priors.get(priors.Normal(1.0) if prior is None else prior)
        self.bias_prior = priors.get(bias_prior)
        self.variational_bias = variational_bias
        self.estimator = estimator
        if rho_initializer is None:
            rho_initializer = keras.initializers.Constant(-5.0)
        self.rho_initializer = keras.initializers.get(rho_initializer)
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.annealing = Annealing()
