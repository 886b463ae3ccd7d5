"""The base class of layers with a distribution over their weights."""

import contextlib
import functools
import math
import threading
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _backend
from keras_bdl import _keras
from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_seed
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._protocols import SamplesWeights
from keras_bdl._random import _noise as forward_pass_noise
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.layers import _estimators as estimators
from keras_bdl.layers import _weight_draw as weight_draw
from keras_bdl.layers._computed_weights import ComputedWeights
from keras_bdl.layers._weight_draw import WeightPosterior
from keras_bdl.layers._weight_priors import StoredPrior
from keras_bdl.layers._weight_priors import WeightPriors
from keras_bdl.layers._weight_priors import as_prior
from keras_bdl.likelihoods._loss_as_likelihood import guard_likelihood
from keras_bdl.priors import Normal
from keras_bdl.priors._prior import Prior
from keras_bdl.priors._tfp_distribution import TFPDistribution


class _ThreadState(threading.local):
    """State of a layer in one thread, since replicas are threads.

    `attributes` are the present values of `ReplacedAttribute`s, by name, and
    `forward_pass` is the last `ForwardPass`. Keras keeps one list of losses and
    clears it when a forward pass begins. Replicas take turns in the middle of a
    forward pass, as in a synchronized `BatchNormalization`, so one replica
    would clear the losses of another.
    """

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.forward_pass: weight_draw.ForwardPass | None = None
        self.losses: list = []
        self.loss_ids: set = set()


class ReplacedAttribute:
    """A layer attribute that has another value in a block of `replaced`.

    `default` returns the value outside of such blocks, from the layer and the
    name of the attribute. Without `default`, this is the assigned value.
    """

    def __init__(self, default: Callable | None = None):
        self._default = default or _assigned

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        replaced = layer._of_thread.attributes
        if self._name in replaced:
            return replaced[self._name]
        return self._default(layer, self._name)

    def __set__(self, layer: Any, value: Any) -> None:
        vars(layer)[self._name] = value


def _assigned(layer: Any, name: str) -> Any:
    if name not in vars(layer):
        raise AttributeError(
            f"`{type(layer).__name__}` has no attribute {name!r} yet, because "
            "a layer gets its weights when it is built. Call the layer on an "
            f"input first. Received: built={layer.built}"
        )
    return vars(layer)[name]


def _mean_or_assigned(layer: Any, name: str) -> Any:
    for posterior in layer._posteriors:
        if posterior.name == name:
            return ops.cast(posterior.mean, layer.compute_dtype)
    return _assigned(layer, name)


@contextlib.contextmanager
def replaced(layer: Any, values: dict[str, Any]) -> Iterator[None]:
    """Gives `ReplacedAttribute`s of a layer other values in this thread."""
    state = layer._of_thread
    before = state.attributes
    state.attributes = {**before, **values}
    try:
        yield
    finally:
        state.attributes = before


class Annealing:
    """Numbers of a variational layer that callbacks raise slowly.

    The numbers are variables, so a change needs no new trace. This plain
    object hides the variables from Keras, so they are not weights of the layer.

    Attributes:
        kl_weight: Factor of the KL in the loss. 1 gives the evidence bound.
        kl_schedule: A function without arguments that returns this factor in
            the graph, in place of `kl_weight`, or `None`.
        noise: Factor of the standard deviation of the drawn weights, and of the
            KL. With 0, the likelihood alone trains the means.
    """

    def __init__(self) -> None:
        self.kl_weight = _number("kl_weight")
        self.kl_schedule: Callable | None = None
        self.noise = _number("noise")

    def kl_factor(self) -> ArrayLike:
        """Returns the factor of the KL in the loss."""
        if self.kl_schedule is not None:
            return self.noise * self.kl_schedule()
        return self.noise * self.kl_weight


def _number(name: str) -> keras.Variable:
    return keras.Variable(
        1.0, dtype="float32", trainable=False, autocast=False, name=name
    )


class Variational(WeightPriors, ComputedWeights):
    """Gives the weights of a Keras layer a distribution.

    In training, the weights are

        w = mean + softplus(rho) noise                                    (1)

    where the noise has the variance 1, with one draw for all calls of a forward
    pass. Otherwise the weights are
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

    kernel = ReplacedAttribute(_mean_or_assigned)
    embeddings = ReplacedAttribute(_mean_or_assigned)
    bias = ReplacedAttribute(_mean_or_assigned)
    use_bias = ReplacedAttribute()
    activation = ReplacedAttribute()

    def __init__(
        self,
        *args: Any,
        prior: PriorLike | None = None,
        bias_prior: PriorLike | None = None,
        variational_bias: bool = True,
        estimator: str = "weight",
        rho_initializer: Any = None,
        dataset_size: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        self._of_thread = _ThreadState()
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

    # Keras assigns, reads and clears attributes of the next two names.

    @property
    def _losses(self) -> list:
        return self._of_thread.losses

    @_losses.setter
    def _losses(self, value: list) -> None:
        self._of_thread.losses = value

    @property
    def _loss_ids(self) -> set:
        return self._of_thread.loss_ids

    @_loss_ids.setter
    def _loss_ids(self, value: set) -> None:
        self._of_thread.loss_ids = value

    def add_weight(
        self, *args: Any, name: str | None = None, **kwargs: Any
    ) -> keras.Variable:
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

    def call(self, inputs: ArrayLike, training: bool | None = None) -> Any:
        """Applies the layer with drawn weights, or with the means."""
        if not training:
            return super().call(inputs)
        estimator = estimators.BY_NAME[self.estimator]
        return estimator(self, inputs, self._forward_pass())

    def compute_output_spec(
        self, inputs: keras.KerasTensor, training: bool | None = None
    ) -> keras.KerasTensor:
        """Returns shape and dtype of the outputs, without a draw."""
        # The method of some Keras layers does not take `training`.
        return super().compute_output_spec(inputs)

    def call_with(
        self, inputs: ArrayLike, attributes: dict[str, Any]
    ) -> ArrayLike:
        """Calls the Keras layer with other values of some attributes."""
        with replaced(self, attributes):
            return super().call(inputs)

    def holding(self, number: int) -> contextlib.AbstractContextManager:
        """Returns a context in which inference uses one draw of the weights.

        All calls, batches and replicas use the same draw, as long as the
        variables of the layer keep their values.

        Args:
            number: Number of the draw, counted from 0.
        """
        start = self.seed_generator.state[0]
        numbers = functools.partial(
            weight_draw.normals,
            self.weight_posteriors,
            ops.stack([start, ops.cast(number, start.dtype)]),
            weight_draw.NUMBERED_DRAWS,
            bound=self.noise_bound,
        )
        weights = self._draw(numbers).weights
        cast = {n: ops.cast(w, self.compute_dtype) for n, w in weights.items()}
        return replaced(self, cast)

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
        last = self._of_thread.forward_pass
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
        return self._draw(numbers).kl_divergence()

    def sample_weights(self, seed: int) -> list:
        """Returns a pair for each tensor: the variable of the mean, and a draw.

        `keras_bdl.extend.SamplesWeights` describes this method.
        """
        posteriors = self.weight_posteriors
        draws = weight_draw.host_draws(posteriors, seed, self.noise_bound)
        means = [p.mean for p in posteriors]
        return list(zip(means, draws, strict=True))

    def get_config(self) -> dict:
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

    def _draw(self, numbers: Callable[[], Any]) -> weight_draw.Draw:
        posteriors = self.weight_posteriors
        tensors = [p.read() for p in posteriors]
        return weight_draw.Draw(posteriors, tensors, numbers)

    def _forward_pass(self) -> weight_draw.ForwardPass:
        """Returns the draw of this forward pass; the first call adds (2)."""
        state = self._of_thread
        if state.forward_pass is None or self.kl_per_example is None:
            self._check_outer_loss()
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
            state.forward_pass = weight_draw.ForwardPass(
                means={p.name: mean for p, (mean, *_) in pairs},
                drawn=drawn,
                seed=seed,
                kl_per_example=kl_per_example,
                loss=loss,
            )
        return state.forward_pass

    def _check_outer_loss(self) -> None:
        """Makes the compiled loss of the model in this call a likelihood.

        A plain `keras.Model` does not do this for its layers.
        """
        outer = _keras.entry_layer(self)
        guard_likelihood(
            f"`{type(self).__name__}`",
            outer,
            [self.dataset_size],
            getattr(outer, "given_observations", None),
        )


def start_from(layer: Any, weights: ArrayLike | None) -> None:
    """Makes an array, or a list of one array, the means of an embedding."""
    if weights is None:
        return
    # A list of one row of numbers is itself an array.
    if isinstance(weights, list) and len(weights) == 1:
        weights = weights[0] if len(np.shape(weights[0])) == 2 else weights
    layer.build()
    layer.embeddings_mean.assign(weights)


def variational_layers(model: keras.Model) -> list[Variational]:
    """Returns the `Variational` layers of a model, each of them once."""
    return [
        one for one in _keras.all_layers(model) if isinstance(one, Variational)
    ]


def sampling_layers(model: keras.Model) -> list[Any]:
    """Returns the layers of a model that draw their weights, each of them once.

    These are variational layers, and layers of users that have the method of
    `keras_bdl.extend.SamplesWeights`.
    """
    return [
        one
        for one in _keras.all_layers(model)
        if isinstance(one, SamplesWeights)
    ]


def annealed_layers(callback: keras.callbacks.Callback) -> list[Annealing]:
    """Returns the `Annealing` of every variational layer, for a callback."""
    found = [layer.annealing for layer in variational_layers(callback.model)]
    if not found:
        raise ValueError(
            f"`{type(callback).__name__}` needs a model with variational "
            "layers, such as `keras_bdl.layers.MeanFieldDense`. "
            f"Received: model={callback.model.name!r} without one"
        )
    return found


def end_annealing(model: keras.Model) -> bool:
    """Gives the KL and the noise their full weight in all layers.

    The result is `True` if a layer had a schedule. A training step that was
    traced before this call still contains the schedule.
    """
    had_schedule = False
    for layer in variational_layers(model):
        annealing = layer.annealing
        annealing.kl_weight.assign(1.0)
        annealing.noise.assign(1.0)
        had_schedule |= annealing.kl_schedule is not None
        annealing.kl_schedule = None
    return had_schedule


# In these layers few positions share a weight, so the draw of a weight takes
# longer than its use.
LAYERS = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


def worth_compiling(layer: Any) -> bool:
    """Returns whether XLA should compile the draw of the weights of a layer.

    A draw has about twenty operations per weight. Without compilation, they
    take longer than the rest of the step of a dense layer.
    """
    return (
        isinstance(layer, LAYERS)
        and all(
            isinstance(p.prior, (Prior, StoredPrior))
            and not isinstance(p.prior, TFPDistribution)
            for p in layer.weight_posteriors
        )
        and _backend.pays_to_compile(
            max(math.prod(p.shape) for p in layer.weight_posteriors)
        )
    )


class CompiledDraw:
    """Keeps the compiled functions that draw the weights, for all traces.

    A separate function makes the random numbers. If one function made the
    numbers and used them, XLA would make the numbers again at each use. The
    functions are not attributes of the layer, because Keras would export them.
    """

    def __init__(self) -> None:
        self._functions: tuple | None = None

    def of(self, layer: Any, tensors: Any, seed: Any, annealed: Any) -> Any:
        """Returns what `weight_draw.results_of` returns for new numbers.

        The first call compiles the functions, if that is worth it. Otherwise,
        layers alike share a trace. The result has a gradient with respect to
        the tensors that each of the `weight_posteriors` read.
        """
        numbers = functools.partial(weight_draw.numbers_of, layer)
        outputs = functools.partial(weight_draw.results_of, layer)
        if not worth_compiling(layer):
            return _backend.call_shared(
                lambda tensors, seed, annealed: outputs(
                    tensors, numbers(seed), seed, annealed
                ),
                tensors,
                seed,
                annealed,
                key=weight_draw.constants_of(layer),
                sizes=True,
            )
        if self._functions is None:
            self._functions = (
                _backend.compile_part(numbers),
                _backend.compile_recomputed(outputs),
            )
        numbers, outputs = self._functions
        return outputs(tensors, numbers(seed), seed, annealed)

    def forget(self) -> None:
        """Makes the next call compile its functions again."""
        self._functions = None
