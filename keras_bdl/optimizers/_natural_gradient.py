"""The Gaussian and the training step of VOGN, IVON and Noisy K-FAC."""

import math
import warnings
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import TypedDict
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._arguments import as_names
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._backend import call_shared
from keras_bdl._backend import is_tracing
from keras_bdl._backend import num_replicas
from keras_bdl._backend import outside_of_trace
from keras_bdl._backend import pays_to_compile
from keras_bdl._backend import tensor
from keras_bdl._keras import loss_scale
from keras_bdl._random._noise import EVALUATION
from keras_bdl._random._noise import TRAINING
from keras_bdl._random._noise import draw_numbers
from keras_bdl._random._noise import random_bits
from keras_bdl._random._noise import split_numbers
from keras_bdl.distribute._replicas import for_all_replicas
from keras_bdl.distribute._replicas import replica_weight
from keras_bdl.optimizers._accumulator import Accumulator
from keras_bdl.optimizers._target import FittedGaussian
from keras_bdl.optimizers._target import NoOptions
from keras_bdl.optimizers._target import PosteriorOptimizer
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import check_any_weight
from keras_bdl.posteriors._covered_weights import check_weights
from keras_bdl.posteriors._covered_weights import excluded_variables
from keras_bdl.posteriors._covered_weights import learned_variables

# The initial curvature s_0 = max(LARGE_DATA / sqrt(N),
# min(SMALL_DATA / N, AT_MOST)). With few examples, samples would be too wide:
# SMALL_DATA gives a standard deviation of 0.026. AT_MOST bounds s_0 below 750
# examples, because steps are multiplied by it. `examples/defaults.py` compares
# them with others.
LARGE_DATA, SMALL_DATA, AT_MOST = 12.0, 1500.0, 2.0

# With more tensors, XLA compiles only the noise of a sample.
FEW_TENSORS = 8


class NaturalGradientOptions(TypedDict, total=False):
    """The arguments that `IVON`, `VOGN`, `OGN`, `NoisyKFAC` and `KFAC` share.

    Args:
        prior_precision: delta, of the prior `N(0, 1/delta)` of every weight.
            Defaults to `1.0`.
        temperature: tau, float or schedule. tau changes only the likelihood.
            In samplers, the temperature also changes the prior. Defaults to
            `1.0`.
        augmentation_factor: rho, the factor by which data augmentation
            multiplies the number of examples. Defaults to `1.0`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables that have neither prior nor noise. In `NoisyKFAC` and
            `KFAC`, a kernel and its bias must be excluded together. Defaults
            to `("BatchNormalization",)`.
        beta_1: Decay of the momentum. Defaults to `0.9`.
        rescale_learning_rate: Whether steps are multiplied by
            `s_0 + delta_t`, with s_0 the initial curvature, and in `IVON` by
            `(1 - beta_1^t) / (1 - beta_1)`. The first steps are then like those
            of SGD with the same learning rate. Has no effect with
            `initial_curvature="first_batch"`. Defaults to `True`.
        gradient_accumulation_steps: k, the number of batches of `fit` for one
            step, at least 2. Gradients and curvature are averages over the k
            batches. With equal batches, the step is that of one batch with all
            examples, but for BatchNorm and dropout. Defaults to `None`: one
            batch.
        share_sample: Whether the k batches of a step have the same posterior
            sample. With `False`, each has its own, as with `train_samples`.
            Defaults to `True`.
        seed: Seed of the noise. Defaults to `None`: a seed drawn when the
            optimizer is made, which depends on `keras.utils.set_random_seed`.
            The config holds the drawn number, and a resumed run continues with
            the same noise.
        name: Name of the optimizer. Defaults to `None`: Keras makes one from
            the name of the class.
    """

    prior_precision: float
    temperature: FloatOrSchedule
    augmentation_factor: float
    exclude_from_inference: str | Sequence[str]
    beta_1: float
    rescale_learning_rate: bool
    gradient_accumulation_steps: int | None
    share_sample: bool
    seed: int | None
    name: str | None


class NaturalGradient(FittedGaussian, PosteriorOptimizer):
    """Base of the optimizers that fit a Gaussian q by gradients at its samples.

    With N examples, augmentation factor rho, temperature tau and prior
    `N(0, 1/delta)`, the optimizer minimises

        E_q[loss] + tau / (rho N) KL(q || prior)                          (1)

    which fits q to `p(w) exp(-rho N loss(w) / tau)`. The variables of the model
    hold the means mu. A step uses samples in their place. With a curvature s
    of each weight and `delta_t = tau delta / (rho N)`,

        w = mu + eps sqrt(tau / (rho N (s + delta_t))),  eps ~ N(0, I)    (2)

    A subclass has the methods `batch_statistics` and `update_step`. If its
    posterior differs from (2), it has `draw` and `fitted_gaussian`, too.
    """

    # The mean over a batch is no gradient that Keras could divide by a factor.
    refused = (*PosteriorOptimizer.refused, "loss_scale_factor")
    advice = (
        "; write weight decay as `prior_precision`, and scale losses with "
        "`keras.optimizers.LossScaleOptimizer`"
    )
    noisy_training = True
    needs_scores = False  # whether `draw` also returns `eps / sigma`
    # The weights of the model in training, or `None` before.
    trained_weights: TrainedWeights | None = None
    _excluded: frozenset = frozenset()
    _examples: Any = None  # a variable once built
    _sizes: tuple | None = None
    _accumulator: Accumulator | None = None

    def __init__(
        self,
        learning_rate: FloatOrSchedule,
        dataset_size: int | None = None,
        *,
        beta_2: float,
        initial_curvature: float | Literal["first_batch"] | None,
        prior_precision: float = 1.0,
        temperature: FloatOrSchedule = 1.0,
        augmentation_factor: float = 1.0,
        exclude_from_inference: str | Sequence[str] = ("BatchNormalization",),
        beta_1: float = 0.9,
        rescale_learning_rate: bool = True,
        gradient_accumulation_steps: int | None = None,
        share_sample: bool = True,
        seed: int | None = None,
        name: str | None = None,
        **options: Unpack[NoOptions],
    ):
        super().__init__(
            learning_rate,
            dataset_size,
            temperature=temperature,
            seed=seed,
            name=name,
            **options,
        )
        check_number("prior_precision", prior_precision, above=0.0)
        if not callable(temperature):
            check_number("temperature", temperature, above=0.0)
        check_number("augmentation_factor", augmentation_factor, above=0.0)
        check_number("beta_1", beta_1, at_least=0.0, below=1.0)
        check_number("beta_2", beta_2, at_least=0.0, below=1.0)
        if gradient_accumulation_steps is not None:
            check_count(
                "gradient_accumulation_steps",
                gradient_accumulation_steps,
                at_least=2,
            )
        self.prior_precision = prior_precision
        self.augmentation_factor = augmentation_factor
        self.exclude_from_inference = as_names(exclude_from_inference)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.initial_curvature = initial_curvature
        self.rescale_learning_rate = check_bool(
            "rescale_learning_rate", rescale_learning_rate
        )
        # Keras accumulates one tensor for each variable, and its attribute of
        # the full name stays `None`.
        self.accumulated_batches = gradient_accumulation_steps
        self.share_sample = check_bool("share_sample", share_sample)

    @property
    def trained_under_draws(self) -> bool:  # type: ignore[override]
        """Whether training uses samples, not the means."""
        return self.noisy_training

    def build(self, variables: list) -> None:
        """Creates the variables of the posterior and of sums over batches."""
        if self.built:
            return
        self.agree_on_seed()
        super().build(variables)
        # A loaded posterior needs N, and a config does not hold a counted N.
        self._examples = self.add_variable(
            (),
            dtype="float32",
            aggregation="only_first_replica",
            name="examples",
        )
        self._momenta = self.add_optimizer_variables(variables, "momentum")
        self._curvatures = self.add_curvatures(variables)
        self.counted()
        if self.accumulated_batches is not None:
            self._accumulator = Accumulator(
                self,
                self.statistics_shapes(variables),
                keras.backend.result_type(
                    "float32", *{v.dtype for v in variables}
                ),
                self.accumulated_batches,
            )

    def add_curvatures(self, variables: list) -> list:
        """Returns the variable of s for each trainable variable, or `None`."""
        return self.add_optimizer_variables(variables, "curvature")

    def counted(self) -> None:
        """Sets s to its initial value, once N is known."""
        start = self.initial_curvature
        if start == "first_batch" or not self.built:
            return
        if start is None and not self.dataset_size.known:
            return  # `fit` calls this method again
        if int(ops.convert_to_numpy(self.iterations)) == 0:
            self.assign_curvatures(self.start_of_curvature())

    def assign_curvatures(self, value: Any) -> None:
        """Sets s of every weight to one number."""
        for curvature in filter(lambda s: s is not None, self._curvatures):
            full = ops.full(curvature.shape, value, dtype=curvature.dtype)
            curvature.assign(full)

    def start_of_curvature(self) -> Any:
        """Returns s_0, a number."""
        if self.initial_curvature is None:
            examples = self.number_of_examples()
            return ops.maximum(
                LARGE_DATA / ops.sqrt(examples),
                ops.minimum(SMALL_DATA / examples, AT_MOST),
            )
        return self.initial_curvature

    def curvature(self, variable: keras.Variable) -> Any:
        """Returns s of a variable."""
        return tensor(self._curvatures[_keras.variable_index(self, variable)])

    def precision(self, variable: keras.Variable) -> Any:
        """Returns s + delta_t of a variable."""
        return self.curvature(variable) + self.scaled_prior(variable)

    def step_size(self, learning_rate: Any, prior: Any) -> Any:
        """Returns the factor of a step, the learning rate times s_0 + delta_t.

        `prior` is delta_t of the variable that moves, in its dtype.
        """
        step = ops.cast(learning_rate, prior.dtype)
        if (
            not self.rescale_learning_rate
            or self.initial_curvature == "first_batch"
        ):
            return step
        return step * (ops.cast(self.start_of_curvature(), prior.dtype) + prior)

    def number_of_examples(self) -> Any:
        """Returns N; a loaded optimizer returns the N of its training."""
        size = self.dataset_size
        # A loaded model has not shown its number of labels yet.
        if self.built and (not size.known or size.labels is None):
            with outside_of_trace():
                trained = float(ops.convert_to_numpy(self._examples)) > 0
            if trained:
                return tensor(self._examples)
        return size.value()

    def noise_variance(self) -> Any:
        """Returns `tau / (rho N)`, or 0 before the first curvature."""
        if self.initial_curvature == "first_batch":
            return ops.where(self.is_first(), 0.0, self._kl_weight())
        return self._kl_weight()

    def _kl_weight(self) -> Any:
        """Returns `tau / (rho N)` of (1)."""
        size = self.augmentation_factor * self.number_of_examples()
        return self.temperature_now() / size

    def scaled_prior(self, variable: keras.Variable) -> Any:
        """Returns delta_t of a variable; 0 for an excluded variable."""
        return self.prior_term(self.is_excluded(variable), variable.dtype)

    def prior_term(self, excluded: bool, dtype: Any) -> Any:
        """Returns delta_t in a dtype; 0 for excluded variables."""
        if excluded:
            return ops.zeros((), dtype)
        return ops.cast(self.prior_precision * self._kl_weight(), dtype)

    def is_first(self) -> Any:
        """Returns whether this is the first step."""
        return ops.equal(self.iterations, 0)

    def prepare(self, model: keras.Model, x: Any = None) -> list:
        """Returns the trainable weights; builds model and optimizer."""
        self._build_for(model, x)
        variables = model.trainable_variables
        self._check_known(model, variables)
        self._exclude(model, variables)
        return variables

    def fitted_weights(
        self, model: keras.Model, x: Any = None, *, evaluating: bool = False
    ) -> list:
        """Returns the weights that were trained, also if they are frozen now.

        Raises before the first step: no posterior exists yet.
        """
        self._check_learned(evaluating)
        self._build_for(model, x)
        known = _keras.optimized_variables(self)
        variables = learned_variables(model, self.trained_weights, known)
        weights = {id(v) for v in model.weights}
        if any(id(v) not in weights for v in known):  # built for another model
            variables = model.trainable_variables
        self._check_known(model, variables)
        check_any_weight(type(self).__name__, variables)
        self._exclude(model, variables)
        return variables

    def _build_for(self, model: Any, x: Any) -> None:
        """Builds the model and the optimizer, if needed."""
        if not model.built and x is not None:
            _keras.call_with_training(model, x, training=False)
        if not self.built:
            if is_tracing():
                # A new optimizer has no saved N: raises if N is unknown.
                self.dataset_size.value()
            # A model without `Input` is built while its first step is traced.
            # Only outside of that graph do new variables have values at once.
            with outside_of_trace(), model.distribute_strategy.scope():
                model.optimizer.build(model.trainable_variables)

    def _check_known(self, model: Any, variables: Any) -> None:
        known = {id(v) for v in _keras.optimized_variables(self)}
        unknown = [v.path for v in variables if id(v) not in known]
        if unknown:
            raise ValueError(
                f"`{type(self).__name__}` holds the posterior of the variables "
                "that it was built with. Compile another model, or a model "
                "with newly unfrozen layers, with a new optimizer. "
                f"Received: model={model.name!r} with {unknown}"
            )

    def _exclude(self, model: Any, variables: Any) -> None:
        excluded = excluded_variables(model, self.exclude_from_inference)
        self._excluded = frozenset(
            _keras.variable_index(self, v)
            for v in variables
            if id(v) in excluded
        )

    def is_excluded(self, variable: keras.Variable) -> bool:
        """Returns whether a variable has neither prior nor noise."""
        return _keras.variable_index(self, variable) in self._excluded

    def check(self, variables: list) -> None:
        """Raises or warns if the posterior of a weight would be wrong."""
        uncertain = [v for v in variables if not self.is_excluded(v)]
        name = type(self).__name__
        check_weights(name, uncertain, variables, prior="prior_precision")

    def _check_learned(self, evaluating: Any) -> None:
        with outside_of_trace():
            if int(ops.convert_to_numpy(self.iterations)) > 0:
                return
        message = (
            f"`{type(self).__name__}` has no posterior before its first step. "
            "Train the model, or load a trained one with "
            "`keras.models.load_model`. `load_weights` loads the posterior "
            "only into a model that is built and compiled. Compiling again "
            "discards the posterior. `keras.Model.predict` with `samples=0` "
            "uses the network without a posterior. Received: iterations=0"
        )
        if not evaluating or not self.dataset_size.known:
            raise ValueError(message)
        warnings.warn(message, stacklevel=2)

    def statistics_shapes(self, variables: list) -> list[list]:
        """Returns the shapes of the tensors of `batch_statistics`."""
        return [[v.shape, v.shape] for v in variables]

    def batch_statistics(
        self, model: keras.Model, data: Any, draw: Any, loss_scale: Any
    ) -> tuple:
        """Returns loss, outputs and statistics of a batch at one sample.

        The statistics are a tuple of tensors for each variable, such as the
        gradient and its square. They do not contain `loss_scale`, the factor of
        the loss in the backward pass, or `None`. Replicas add them up. A bias
        fused with its kernel has an empty tuple; the kernel's holds both.
        """
        raise NotImplementedError

    def bayesian_train_step(self, model: keras.Model, data: Any) -> dict:
        """Moves the means by one step, from averages over `train_samples`."""
        data = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.prepare(model, data[0])
        self.check(variables)
        scale = loss_scale(model.optimizer)
        losses, outputs, tensors = [], [], []
        for number in range(model.train_samples):
            draw = self.draw(variables, TRAINING, number, self.needs_scores)
            loss, y_pred, found = self.batch_statistics(
                model, data, draw, scale
            )
            losses.append(loss)
            outputs.append(y_pred)
            tensors.append(keras.tree.flatten(found))
        means = [sum(each[1:], each[0]) for each in zip(*tensors, strict=True)]
        if len(tensors) > 1:
            means = [mean / len(tensors) for mean in means]
        if scale is not None:  # the outer optimizer divides by the scale
            means = [mean * ops.cast(scale, mean.dtype) for mean in means]
        if num_replicas() > 1:
            weight = replica_weight(data)
            means = for_all_replicas(model.optimizer, means, weight)
        # All tensors go into one list, as if they were gradients: replicas
        # reduce this list, and loss scaling checks it for infinities.
        self._sizes = tuple(len(of_variable) for of_variable in found)
        owners = zip(variables, self._sizes, strict=True)
        model.optimizer.apply(means, [v for v, n in owners for _ in range(n)])
        x, y, sample_weight = data
        return model.finish_draws(losses, x, y, outputs, sample_weight)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Applies the results of `bayesian_train_step`; raises for others."""
        grads = list(grads)
        if self._sizes is None or len(grads) != sum(self._sizes):
            raise ValueError(
                f"`{type(self).__name__}` runs the training step itself, so it "
                "needs a `keras_bdl.Model`. Make one of a functional or "
                "sequential model with "
                "`model = keras_bdl.Model(model.inputs, model.outputs)`, and "
                "derive a subclass from `keras_bdl.Model` in place of "
                "`keras.Model`. Then compile it, without `objective`, and "
                "leave `train_step` as it is. "
                f"Received: the gradients of {len(grads)} variables from the "
                "training step of another model"
            )
        variables, found, start = [], [], 0
        for size in filter(None, self._sizes):
            variables.append(trainable_variables[start])
            found.append(tuple(grads[start : start + size]))
            start += size
        if self._accumulator is None:
            self._step(found, variables)
        else:
            self._accumulator.add(found, variables, self._step)

    def _step(self, found: Any, variables: Any) -> None:
        super().apply(found, variables)
        self._examples.assign(self.number_of_examples())

    def draw(
        self, variables: list, stream: int, number: int, scores: bool = False
    ) -> Any:
        """Returns one posterior sample (2), a list of tensors.

        The stream `TRAINING` has a new sample in each step and on each replica;
        `EVALUATION` has the same sample on every replica and in every call.
        With `scores`, a second list holds `eps / sigma` of each variable, and
        `None` for a variable without noise.
        """
        values: list = [tensor(v) for v in variables]
        of_values: list = [None] * len(values)
        drawn = [i for i, v in enumerate(variables) if not self.is_excluded(v)]
        if drawn and (self.noisy_training or stream == EVALUATION):
            size = sum(math.prod(variables[i].shape) for i in drawn)
            arguments = (
                draw_numbers(self.bits(size, stream, number)),
                [values[i] for i in drawn],
                [self.curvature(variables[i]) for i in drawn],
                [self.scaled_prior(variables[i]) for i in drawn],
                self.noise_variance(),
                scores,
            )
            # In one program with the noise, XLA would make the noise again for
            # each result. XLA takes 50 milliseconds for each tensor.
            if len(drawn) <= FEW_TENSORS and pays_to_compile(size):
                samples, found = call_shared(
                    gaussian_sample, *arguments, sizes=True, compiled=True
                )
            else:
                samples, found = gaussian_sample(*arguments)
            for i, sample, score in zip(drawn, samples, found, strict=True):
                values[i], of_values[i] = sample, score
        return (values, of_values) if scores else values

    def bits(self, size: int, stream: int, number: int) -> Any:
        """Returns the random bits of a sample, 32 for each weight."""
        step = self.iterations
        if self._accumulator is not None and not self.share_sample:
            step = self._accumulator.batches
        return random_bits(
            size,
            seed=self.noise_seed(),
            stream=stream,
            draw=number,
            step=step if stream == TRAINING else 0,
        )

    def evaluation_sample(
        self, model: keras.Model, variables: list, draw: int
    ) -> list:
        """Returns one sample of the weights, the same in all calls."""
        return self.draw(variables, EVALUATION, draw)

    def fitted_gaussian(
        self, model: keras.Model, variables: list, **options: Any
    ) -> Any:
        """Returns the `keras_bdl.posteriors.Gaussian` over some weights."""
        return Gaussian(
            [ops.convert_to_numpy(v) for v in variables],
            [self.variance(v) for v in variables],
            **options,
        )

    def variance(self, variable: keras.Variable) -> np.ndarray:
        """Returns sigma^2 of a variable, an array; zeros if excluded."""
        if self.is_excluded(variable):
            return np.zeros(variable.shape, variable.dtype)
        factor = float(self.noise_variance())
        return factor / ops.convert_to_numpy(self.precision(variable))

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "prior_precision": self.prior_precision,
            "augmentation_factor": self.augmentation_factor,
            "exclude_from_inference": list(self.exclude_from_inference),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "initial_curvature": self.initial_curvature,
            "rescale_learning_rate": self.rescale_learning_rate,
            "gradient_accumulation_steps": self.accumulated_batches,
            "share_sample": self.share_sample,
        }


def gaussian_sample(
    noise: Any,
    means: list,
    curvatures: list,
    priors: list,
    factor: Any,
    with_scores: bool,
) -> tuple[list, list]:
    """Returns `w` of independent Gaussians, and `eps / sigma` or `None`.

    sigma^2 = factor / (curvature + prior),  w = mean + sigma eps
    """
    noises = split_numbers(noise, [m.shape for m in means])
    samples, scores = [], []
    for eps, mean, s, prior in zip(
        noises, means, curvatures, priors, strict=True
    ):
        precision = s + ops.cast(prior, s.dtype)
        stddev = ops.sqrt(ops.cast(factor, s.dtype) / precision)
        eps = ops.cast(eps, mean.dtype)
        samples.append(mean + stddev * eps)
        scores.append(eps / stddev if with_scores else None)
    return samples, scores
