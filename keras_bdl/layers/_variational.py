"""The base class of layers with a distribution over their weights."""

import functools
from contextlib import AbstractContextManager
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_seed
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._random import _noise as forward_pass_noise
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.layers import _estimators as estimators
from keras_bdl.layers import _weight_draw as weight_draw
from keras_bdl.layers._annealing import Annealing
from keras_bdl.layers._call_attributes import CallState
from keras_bdl.layers._call_attributes import SeenAttribute
from keras_bdl.layers._call_attributes import seeing
from keras_bdl.layers._compilation import CompiledDraw
from keras_bdl.layers._computed_weights import ComputedWeights
from keras_bdl.layers._thread_losses import ThreadLosses
from keras_bdl.layers._thread_losses import check_outer_loss
from keras_bdl.layers._weight_priors import WeightPosterior
from keras_bdl.layers._weight_priors import WeightPriors
from keras_bdl.layers._weight_priors import as_prior
from keras_bdl.layers._weight_priors import mean_or_assigned
from keras_bdl.priors import Normal


class Variational(ThreadLosses, WeightPriors, ComputedWeights):
    """Gives the weights of a Keras layer a distribution.

    In training, the weights are

        w = mean + softplus(rho) noise                                    (1)

    with one draw for all calls of a forward pass. Otherwise the weights are
    the means. In training, the first call of a forward pass adds

        kl_weight KL(q || p) / N                                          (2)

    to the losses, with q the distribution of the weights (1), p the prior and N
    the number of training examples. If the loss is the mean negative
    log-likelihood of the minibatch, its sum with (2) is the negative evidence
    lower bound per example. Each replica draws its own weights. `estimator`
    sets how the layer computes its outputs from a draw:

    - `"weight"`: one draw for the whole batch.
    - `"flipout"`: one draw, with random signs for each example. The expected
      gradient is that of `"weight"`, with less noise.
    - `"local"`: independent noise for each output. The noise has the variance
      of the output under (1). For `Dense` on inputs of rank 2, the expected
      gradient is that of `"weight"`, with the least noise. For other layers
      `"local"` is an approximation: positions get independent noise.

    KL(q || p) is exact for Gaussian priors, and for a Laplace prior of Gaussian
    weights. For other priors, one draw estimates E log p.

    Derive a new layer from two classes, in this order: first a subclass of this
    class that sets `family`, a class of distributions, then a Keras layer. The
    Keras layer must create its weights by `add_weight`, with the names `kernel`
    or `embeddings`, and `bias`. The Keras layer must read the weights as
    attributes of these names.

    Args:
        *args: Arguments of the Keras layer.
        prior: Prior p of each weight: one of `keras_bdl.priors`, a
            distribution of TensorFlow Probability, or one of
            `keras_bdl.distributions`. Defaults to `None`, which means
            `keras_bdl.priors.Normal(1.0)` in layers.
        bias_prior: Prior p of the bias. Defaults to `None`, the `prior`.
        variational_bias: Whether the bias also has a distribution. Defaults
            to `True`.
        estimator: `"weight"`, `"flipout"` or `"local"`. Defaults to
            `"weight"`.
        rho_initializer: Initializer of rho. Defaults to `None`, the constant
            -5.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        seed: Seed of the draws. Two layers with the same seed draw the same
            noise. Defaults to `None`, a random seed.
        **kwargs: Arguments of the Keras layer. Initializers, regularizers and
            constraints apply to the means. LoRA and quantization raise an
            error.

    Call arguments:
        inputs: Inputs of the Keras layer.
        training: Whether to draw the weights and to add (2).
    """

    family: type[WeightDistribution]
    estimators: tuple[str, ...] = ("weight", "flipout", "local")
    sources = "a mean and a scale"
    built: bool
    compute_dtype: str
    losses: list

    kernel = SeenAttribute(mean_or_assigned)
    embeddings = SeenAttribute(mean_or_assigned)
    bias = SeenAttribute(mean_or_assigned)
    use_bias = SeenAttribute()
    activation = SeenAttribute()

    def __init__(
        self,
        *args,
        prior: PriorLike | None = None,
        bias_prior: PriorLike | None = None,
        variational_bias: bool = True,
        estimator: str = "weight",
        rho_initializer: Any = None,
        dataset_size: int | None = None,
        seed: int | None = None,
        **kwargs,
    ):
        self._call_state = CallState()
        self._posteriors: tuple[WeightPosterior, ...] = ()
        self._compiled_draw = CompiledDraw()
        super().__init__(*args, **kwargs)
        check_choice("estimator", estimator, self.estimators)
        self.prior = as_prior(Normal(1.0) if prior is None else prior)
        self.bias_prior = as_prior(bias_prior)
        self.variational_bias = check_bool("variational_bias", variational_bias)
        self.estimator = estimator
        if rho_initializer is None:
            rho_initializer = keras.initializers.Constant(-5.0)
        self.rho_initializer = keras.initializers.get(rho_initializer)
        self.dataset_size = DatasetSize(
            dataset_size, type(self).__name__, maker="keras_bdl.convert"
        )
        if seed is not None:
            check_seed(seed)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.annealing = Annealing()

    def add_weight(self, *args, name=None, **kwargs):
        """Adds a weight, or a mean and a rho for a weight that is drawn."""
        drawn = {"kernel", "embeddings"}
        if self.variational_bias:
            drawn.add("bias")
        if name not in drawn:
            return super().add_weight(*args, name=name, **kwargs)
        # In half precision, the KL loses its small terms.
        kwargs.update(dtype="float32", autocast=False)
        mean = super().add_weight(*args, name=f"{name}_mean", **kwargs)
        rho = super().add_weight(
            shape=mean.shape,
            initializer=self.rho_initializer,
            dtype="float32",
            autocast=False,
            name=f"{name}_rho",
        )
        setattr(self, f"{name}_mean", mean)
        setattr(self, f"{name}_rho", rho)
        posterior = WeightPosterior(name, self.family, mean, rho)
        self._posteriors += (posterior,)
        self._use_prior(posterior, self._prior_of(name))
        return mean

    def call(self, inputs, training=None):
        """Applies the layer with drawn weights, or with the means."""
        if not training:
            return super().call(inputs)
        estimator = estimators.BY_NAME[self.estimator]
        return estimator(self, inputs, self._forward_pass())

    def compute_output_spec(self, inputs, training=None):
        """Returns shape and dtype of the outputs, without a draw.

        Args:
            inputs: A `keras.KerasTensor`.
            training: Has no effect on shape and dtype. Defaults to `None`.
        """
        # The method of some Keras layers does not take `training`.
        return super().compute_output_spec(inputs)

    def call_seeing(self, inputs: ArrayLike, attributes: dict) -> ArrayLike:
        """Calls the Keras layer with other values of some attributes.

        Args:
            inputs: Inputs of the layer.
            attributes: The values, by the name of the attribute.
        """
        with seeing(self, attributes):
            # The Keras layer comes after this class.
            return super().call(inputs)  # type: ignore[misc]

    def holding(self, number: int) -> AbstractContextManager:
        """Returns a context in which inference uses one draw of the weights.

        All calls, batches and replicas use the same draw, as long as the
        variables of the layer keep their values.

        Args:
            number: Number of the draw, counted from 0.
        """
        weights = weight_draw.numbered_draw(self, number).weights
        cast = {n: ops.cast(w, self.compute_dtype) for n, w in weights.items()}
        return seeing(self, cast)

    @property
    def weight_posteriors(self) -> tuple[WeightPosterior, ...]:
        """The `WeightPosterior` of each tensor: its variables and its prior."""
        if not self.built:
            raise ValueError(
                f"`{type(self).__name__}` gets its weights when it is built. "
                "Call the layer on an input first. "
                f"Received: built={self.built}"
            )
        return self._posteriors

    @property
    def kl_per_example(self) -> ArrayLike | None:
        """KL(q || p) / N of the forward pass whose losses are in `losses`.

        The value does not contain `kl_weight`. The value is `None` if the layer
        was not called with `training=True`.
        """
        last = self._call_state.forward_pass
        # Keras clears the losses at the start of a forward pass.
        if last is None or not any(x is last.loss for x in self.losses):
            return None
        return last.kl_per_example

    def kl_divergence(self) -> ArrayLike:
        """Returns KL(q || p) in nats.

        If the KL has no closed form, one fixed draw estimates E log p.
        """
        posteriors = self.weight_posteriors
        numbers = functools.partial(weight_draw.normals, posteriors, (0, 0))
        tensors = [p.read() for p in posteriors]
        return weight_draw.Draw(posteriors, tensors, numbers).kl_divergence()

    def sample_weights(self, seed: int) -> list:
        """Returns a pair for each tensor of weights.

        A pair has the variable that holds the mean, and the drawn values.

        `keras_bdl.extend.SamplesWeights` describes this method.

        Args:
            seed: Selects the draw; any integer from 0 on.
        """
        posteriors = self.weight_posteriors
        noise = weight_draw.host_noise(posteriors, seed, self.noise_bound)
        return [
            (p.mean, p.distribution().draw(noise[p.name])) for p in posteriors
        ]

    def get_config(self):
        """Returns all arguments."""
        return {
            **super().get_config(),
            "prior": keras.saving.serialize_keras_object(self.prior),
            "bias_prior": keras.saving.serialize_keras_object(self.bias_prior),
            "variational_bias": self.variational_bias,
            "estimator": self.estimator,
            "rho_initializer": keras.initializers.serialize(
                self.rho_initializer
            ),
            "dataset_size": self.dataset_size.given,
            "seed": self.seed,
        }

    # Bound of the uniform numbers that make the noise.
    noise_bound = 1.0

    def _forward_pass(self):
        """Returns the draw of this forward pass; the first call adds (2)."""
        if self.kl_per_example is None:
            check_outer_loss(self)
            seed = forward_pass_noise.next_seed(self.seed_generator)
            posteriors = self.weight_posteriors
            tensors = [p.read() for p in posteriors]
            drawn, kl = self._compiled_draw.of(
                self, tensors, seed, 1.0 * self.annealing.noise
            )
            kl_per_example = kl / self.dataset_size.value()
            loss = self.annealing.kl_factor() * kl_per_example  # (2)
            self.add_loss(loss)
            pairs = zip(posteriors, tensors, strict=True)
            means = {p.name: mean for p, (mean, *_) in pairs}
            self._call_state.forward_pass = weight_draw.ForwardPass(
                means=means,
                drawn=drawn,
                seed=seed,
                kl_per_example=kl_per_example,
                loss=loss,
            )
        return self._call_state.forward_pass
