"""What the layers with a distribution over their weights have in common."""

import functools

import keras
import numpy as np
from keras import ops

from keras_bdl.arguments import check_seed
from keras_bdl.data.dataset_size import DatasetSize
from keras_bdl.layers import draw
from keras_bdl.layers import estimators
from keras_bdl.layers.annealing import Annealing
from keras_bdl.layers.compilation import CompiledDraw
from keras_bdl.layers.compilation import worth_compiling
from keras_bdl.layers.computed_weights import ComputedWeights
from keras_bdl.layers.draw import ForwardPass
from keras_bdl.layers.seen_attribute import CallState
from keras_bdl.layers.seen_attribute import SeenAttribute
from keras_bdl.layers.seen_attribute import assigned
from keras_bdl.layers.seen_attribute import seeing
from keras_bdl.layers.thread_losses import ThreadLosses
from keras_bdl.layers.thread_losses import check_outer_loss
from keras_bdl.layers.weight_priors import WeightPosterior
from keras_bdl.layers.weight_priors import WeightPriors
from keras_bdl.layers.weight_priors import as_prior
from keras_bdl.priors import Normal
from keras_bdl.random import replica_numbers
from keras_bdl.random.replica_numbers import gaussian_noise


def _mean_or_assigned(layer, name):
    for posterior in layer._posteriors:
        if posterior.name == name:
            return ops.cast(posterior.mean, layer.compute_dtype)
    return assigned(layer, name)


class Variational(ThreadLosses, WeightPriors, ComputedWeights):
    """Gives the weights of a Keras layer a distribution.

    The weights are

        w = mean + softplus(rho) noise                                    (1)

    in training, one draw for all calls in a forward pass, and the mean
    otherwise. In training, the first of these calls adds

        kl_weight KL(q || p) / N                                          (2)

    to the losses, so that a loss that is the mean negative log likelihood of
    a batch becomes the negative evidence lower bound of an example. Replicas
    have draws of their own. How the draw enters the outputs is told by
    `estimator`:

    - `"weight"`: one draw for the whole batch.
    - `"flipout"`: one draw, whose signs are changed at random for each
      example. The same expectation, with less variance.
    - `"local"`: noise for each output, of the variance that (1) gives it. The
      same expectation, with the least variance, for `Dense` on inputs of rank
      2. Elsewhere an approximation: positions get independent noise.

    KL(q || p) is exact for Gaussian priors, and for a Laplace prior of Gaussian
    weights. Otherwise E log p is taken at one draw.

    A layer type derives from a subclass of this one, which names the `family`
    of distributions, and from the layer of Keras, in this order. That layer
    must create its weights by `add_weight`, with the names `kernel` or
    `embeddings`, and `bias`, and read them as attributes of these names.

    Args:
        *args: As of the layer of Keras.
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
        seed: Seed of the draws, not that of another layer, whose noise would
            be the same. Defaults to `None`.
        **kwargs: As of the layer of Keras. Initializers, regularizers and
            constraints are those of the means. LoRA and quantization are
            refused.

    Call arguments:
        inputs: As of the layer of Keras.
        training: Whether to draw the weights and to add (2).
    """

    family = None
    estimators = ("weight", "flipout", "local")
    sources = "a mean and a scale"

    kernel = SeenAttribute(_mean_or_assigned)
    embeddings = SeenAttribute(_mean_or_assigned)
    bias = SeenAttribute(_mean_or_assigned)
    use_bias = SeenAttribute()
    activation = SeenAttribute()

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
        self._call_state = CallState()
        self._posteriors = ()
        self._compiled_draw = CompiledDraw()
        super().__init__(*args, **kwargs)
        if estimator not in self.estimators:
            raise ValueError(
                f"`estimator` of `{type(self).__name__}` must be one of "
                f"{self.estimators}. Received: estimator={estimator!r}"
            )
        self.prior = as_prior(Normal(1.0) if prior is None else prior)
        self.bias_prior = as_prior(bias_prior)
        self.variational_bias = variational_bias
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
        """Adds a weight; in place of one that is drawn, a mean and a rho."""
        drawn = {"kernel", "embeddings"}
        if self.variational_bias:
            drawn.add("bias")
        if name not in drawn:
            return super().add_weight(*args, name=name, **kwargs)
        # The KL loses its small terms in half precision.
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

    def call_seeing(self, inputs, attributes):
        """Calls the layer of Keras as if it had these attributes."""
        with seeing(self, attributes):
            return super().call(inputs)

    def holding(self, number: int):
        """Returns a block in which calls without training take one draw.

        It is the same draw for all calls, batches and replicas, as long as
        the variables of the layer stay what they are.

        Args:
            number: Which one, from 0 on.
        """
        start = self.seed_generator.state[0]
        seed = ops.stack([start, ops.cast(number, start.dtype)])
        posteriors, bound = self.weight_posteriors, self.noise_bound
        held = draw.Draw(
            posteriors,
            [p.read() for p in posteriors],
            functools.partial(draw.normals, posteriors, seed, bound=bound),
        )
        weights = {
            name: ops.cast(weight, self.compute_dtype)
            for name, weight in held.weights.items()
        }
        return seeing(self, weights)

    @property
    def posteriors(self):
        """The distribution of each tensor of weights at present, by name."""
        return {p.name: p.distribution() for p in self.weight_posteriors}

    @property
    def weight_posteriors(self):
        """A `WeightPosterior`, variables and prior, for each tensor."""
        if not self.built:
            raise ValueError(
                f"`{type(self).__name__}` must be built to have weights: call "
                f"it on an input first. Received: built={self.built}"
            )
        return self._posteriors

    @property
    def kl_per_example(self):
        """KL(q || p) / N of the forward pass whose losses are in `losses`.

        Without `kl_weight`; `None` where the layer was not called with
        `training=True`.
        """
        last = self._call_state.forward_pass
        # Keras clears the losses when a forward pass begins.
        if last is None or not any(x is last.loss for x in self.losses):
            return None
        return last.kl_per_example

    def kl_divergence(self):
        """Returns KL(q || p) in nats; E log p, if need be, at a fixed draw."""
        posteriors = self.weight_posteriors
        numbers = functools.partial(draw.normals, posteriors, (0, 0))
        tensors = [p.read() for p in posteriors]
        return draw.Draw(posteriors, tensors, numbers).kl_divergence()

    def sample_weights(self, seed: int):
        """Returns pairs of a variable, a mean, and the draw in its place.

        See `keras_bdl.posteriors.SamplesWeights`.

        Args:
            seed: Selects the draw; any integer from 0 on.
        """
        size = sum(p.num_normals for p in self.weight_posteriors)
        bits = np.random.default_rng(seed).integers(
            -(2**31), 2**31, size, "int32"
        )
        uniforms = replica_numbers.of_bits(bits) * self.noise_bound
        noise = draw.noise(self.weight_posteriors, gaussian_noise(uniforms))
        return [
            (p.mean, p.distribution().draw(noise[p.name]))
            for p in self.weight_posteriors
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

    # Of the uniform numbers that make the noise, see `replica_numbers.normal`.
    noise_bound = 1.0

    def _forward_pass(self):
        """Returns what this forward pass draws; the first call adds (2)."""
        if self.kl_per_example is None:
            check_outer_loss(self)
            seed = replica_numbers.next_seed(self.seed_generator)
            posteriors = self.weight_posteriors
            tensors = [p.read() for p in posteriors]
            drawn, kl = self._draw(tensors, seed, 1.0 * self.annealing.noise)
            kl_per_example = kl / self.dataset_size.value()
            loss = self.annealing.kl_factor() * kl_per_example  # (2)
            self.add_loss(loss)
            pairs = zip(posteriors, tensors, strict=True)
            means = {p.name: mean for p, (mean, *_) in pairs}
            self._call_state.forward_pass = ForwardPass(
                means, drawn, seed, kl_per_example, loss
            )
        return self._call_state.forward_pass

    def _draw(self, tensors, seed, annealed):
        """Returns what the estimator needs of a draw, and KL(q || p)."""
        numbers = functools.partial(draw.numbers_of, self)
        results = functools.partial(draw.results_of, self)
        if worth_compiling(self):
            return self._compiled_draw.of(
                numbers, results, tensors, seed, annealed
            )
        return results(tensors, numbers(seed), seed, annealed)
