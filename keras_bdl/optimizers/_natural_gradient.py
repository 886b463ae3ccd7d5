"""Base class of the natural-gradient optimizers."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._backend import call_shared
from keras_bdl._backend import pays_to_compile
from keras_bdl._keras import loss_scale
from keras_bdl._random._noise import EVALUATION
from keras_bdl._random._noise import TRAINING
from keras_bdl._random._noise import draw_numbers
from keras_bdl._random._noise import random_bits
from keras_bdl._random._noise import split_numbers
from keras_bdl.curvature._weight_scope import WeightScope
from keras_bdl.curvature._weight_scope import current_values
from keras_bdl.distribute._replicas import for_all_replicas
from keras_bdl.distribute._replicas import replica_weight
from keras_bdl.optimizers._accumulator import Accumulator
from keras_bdl.optimizers._curvature_state import CurvatureState
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors._posterior import Posterior

# With more tensors, XLA compiles only the noise.
_FEW_TENSORS = 8


class NaturalGradient(CurvatureState):
    """Base of the optimizers that fit a Gaussian by gradients at its samples.

    The variables of the model always hold the means. A training step uses
    posterior samples in place of the means. With the symbols of
    `VariationalOptimizer` and a curvature s, one number per weight,

        w = mu + eps sqrt(tau / (rho N (s + delta_t))),  eps ~ N(0, I)    (1)

    With `gradient_accumulation_steps=k`, gradients and curvature are averages
    over k batches of `fit`, and each k batches make one step: one iteration of
    the learning rate. With equal batches and `share_sample=True`, the step is
    that of one batch with all examples, but for BatchNorm and dropout.

    A subclass overrides `look`, which computes gradients and curvature at a
    sample, and `update_step`. The first argument of `update_step` is the
    result of `look` for one variable, averaged over samples and replicas. A
    subclass whose posterior differs from (1) also overrides `draw` and
    `posterior`.

    Args:
        gradient_accumulation_steps: k, the number of batches for one step, at
            least 2. Defaults to `None`: one batch.
        share_sample: Whether the k batches of a step have the same posterior
            sample. With `False`, each has its own, as with `train_samples`.
            Defaults to `True`.
    """

    noisy_training = True
    needs_scores = False
    _sizes: tuple | None = None
    _accumulator: Accumulator | None = None

    def __init__(
        self,
        *args,
        gradient_accumulation_steps: int | None = None,
        share_sample: bool = True,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        if gradient_accumulation_steps is not None:
            check_count(
                "gradient_accumulation_steps",
                gradient_accumulation_steps,
                at_least=2,
            )
        # Keras accumulates one tensor for each variable, and its attribute of
        # the full name stays `None`.
        self.accumulated_batches = gradient_accumulation_steps
        self.share_sample = check_bool("share_sample", share_sample)

    def build(self, variables):
        """Creates the variables of the posterior and of sums over batches."""
        if self.built:
            return
        super().build(variables)
        if self.accumulated_batches is not None:
            self._accumulator = Accumulator(
                self,
                self.looked_shapes(variables),
                keras.backend.result_type(
                    "float32", *{v.dtype for v in variables}
                ),
                self.accumulated_batches,
            )

    def looked_shapes(self, variables: list) -> list[list]:
        """Returns the shapes of the tensors that `look` finds.

        Args:
            variables: The trainable variables of the model.

        Returns:
            A list of shapes for each variable.
        """
        return [[v.shape, v.shape] for v in variables]

    def look(
        self, model: keras.Model, data: Any, draw: Any, loss_scale: Any
    ) -> tuple:
        """Returns loss, outputs and gradients of a batch at one sample.

        Args:
            model: The `keras_bdl.Model`.
            data: Inputs, targets and weights of the examples.
            draw: The result of `draw`.
            loss_scale: Factor of the loss in the backward pass, or `None`.
                The results do not contain this factor.

        Returns:
            The loss, the outputs and a list with one tuple of tensors for each
            variable. The replicas add up the tensors. The tuple of a variable
            is empty if the tuple of another variable holds the tensors of
            both.
        """
        raise NotImplementedError

    def bayesian_train_step(self, model: keras.Model, data: Any) -> dict:
        """Moves the means by one step, from averages over `train_samples`."""
        data = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.prepare(model, data[0])
        self.check(variables)
        scale = loss_scale(model.optimizer)
        losses, outputs, looks = [], [], []
        for number in range(model.train_samples):
            draw = self.draw(variables, TRAINING, number, self.needs_scores)
            loss, y_pred, found = self.look(model, data, draw, scale)
            losses.append(loss)
            outputs.append(y_pred)
            looks.append(keras.tree.flatten(found))
        means = [_mean(tensors) for tensors in zip(*looks, strict=True)]
        if scale is not None:  # the outer optimizer divides by the scale
            means = [mean * ops.cast(scale, mean.dtype) for mean in means]
        weight = replica_weight(data)
        means = for_all_replicas(model.optimizer, means, weight)
        # All tensors go into one list, as if they were gradients: replicas
        # reduce this list, and loss scaling checks it for infinities.
        self._sizes = tuple(len(of_variable) for of_variable in found)
        owners = zip(variables, self._sizes, strict=True)
        model.optimizer.apply(means, [v for v, n in owners for _ in range(n)])
        x, y, sample_weight = data
        return model.finish_draws(losses, x, y, outputs, sample_weight)

    def apply(self, grads, trainable_variables=None):
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
        step = super().apply
        if self._accumulator is None:
            return step(found, variables)
        return self._accumulator.add(found, variables, step)

    def draw(
        self,
        variables: list,
        stream: int,
        number: int,
        scores: bool = False,
    ) -> Any:
        """Returns one posterior sample (1), a list of tensors.

        Args:
            variables: The trainable variables of the model.
            stream: `TRAINING`: a new sample in each step and on each replica.
                `EVALUATION`: the same sample on every replica and in every
                call.
            number: Index of the sample.
            scores: Whether to return a second list with `eps` divided by the
                standard deviation of its weight, and `None` for a variable
                without noise. Defaults to `False`.
        """
        values = current_values(variables)
        of_values = [None] * len(values)
        drawn = [i for i, v in enumerate(variables) if not self.is_excluded(v)]
        if drawn and (self.noisy_training or stream == EVALUATION):
            size = sum(math.prod(variables[i].shape) for i in drawn)
            bits = self.bits(size, stream, number)
            draws = _compiled_where_it_pays(
                gaussian_draw_and_score if scores else gaussian_draw,
                draw_numbers(bits),
                [values[i] for i in drawn],
                [self.curvature(variables[i]) for i in drawn],
                [self.scaled_prior(variables[i]) for i in drawn],
                self.noise_variance(),
            )
            draws, found = draws if scores else (draws, [None] * len(drawn))
            for i, value, score in zip(drawn, draws, found, strict=True):
                values[i], of_values[i] = value, score
        return (values, of_values) if scores else values

    def bits(self, size: int, stream: int, number: int) -> tf.Tensor:
        """Returns the random bits of a sample, 32 for each weight.

        Args:
            size: Number of weights.
            stream: `TRAINING` or `EVALUATION`.
            number: Index of the sample.
        """
        step = self.iterations if stream == TRAINING else 0
        if self._accumulator is not None and not self.share_sample:
            step = self._accumulator.batches if stream == TRAINING else 0
        return random_bits(
            size,
            seed=self.noise_seed(),
            stream=stream,
            draw=number,
            step=step,
        )

    def call_with_draw(self, model: keras.Model, x: Any, draw: int) -> Any:
        """Returns the outputs at one sample, the same sample for all batches.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Index of the sample.
        """
        self.check_learned(evaluating=True)
        variables = self.learned(model, x)
        values = self.draw(variables, EVALUATION, draw)
        scope = WeightScope(variables, values)
        scope.collect_losses = False  # the layers keep their losses
        with scope:
            return _keras.call_with_training(model, x, training=False)

    def posterior(self, model: keras.Model) -> Posterior:
        """Returns the `keras_bdl.posteriors.Gaussian` that was learned.

        Args:
            model: The trained model.
        """
        self.check_learned()
        variables = self.learned(model)
        posterior = Gaussian(
            [ops.convert_to_numpy(v) for v in variables],
            [self.variance(variable) for variable in variables],
            names=[v.name for v in variables],
            trained_under_draws=self.noisy_training,
        )
        return posterior.beside_frozen_weights_of(model, variables)

    def variance(self, variable: keras.Variable) -> np.ndarray:
        """Returns sigma^2 of a variable, an array; zeros if excluded.

        Args:
            variable: A trainable variable.
        """
        if self.is_excluded(variable):
            return np.zeros(variable.shape, variable.dtype)
        factor = float(self.noise_variance())
        return factor / ops.convert_to_numpy(self.precision(variable))

    def noise_variance(self) -> tf.Tensor:
        """Returns `tau / (rho N)`, or 0 before the first curvature."""
        if self.initial_curvature == "first_batch":
            return ops.where(self.is_first(), 0.0, self.kl_weight())
        return self.kl_weight()

    def is_first(self) -> tf.Tensor:
        """Returns whether this is the first step."""
        return ops.equal(self.iterations, 0)

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "gradient_accumulation_steps": self.accumulated_batches,
            "share_sample": self.share_sample,
        }


def _mean(tensors):
    if len(tensors) == 1:
        return tensors[0]
    return tf.add_n(tensors) / len(tensors)


def gaussian_draw(
    noise: tf.Tensor, means: list, curvatures: list, priors: list, factor: Any
) -> list:
    """Returns weights drawn from independent Gaussians.

        sigma^2 = factor / (curvature + prior)                            (1)
        w = mean + sigma eps,   eps ~ N(0, I)                             (2)

    Args:
        noise: Standard normal numbers, one for each weight.
        means: List of tensors.
        curvatures: List of tensors.
        priors: List of numbers.
        factor: A number.

    Returns:
        A list of `w`.
    """
    parts = _noise_and_stddev(noise, means, curvatures, priors, factor)
    return [
        mean + stddev * eps  # (2)
        for mean, eps, stddev in zip(means, *parts, strict=True)
    ]


def gaussian_draw_and_score(
    noise: tf.Tensor, means: list, curvatures: list, priors: list, factor: Any
) -> tuple[list, list]:
    """Returns two lists, `w` and `eps / sigma` of `gaussian_draw`.

    Args:
        noise: Standard normal numbers, one for each weight.
        means: List of tensors.
        curvatures: List of tensors.
        priors: List of numbers.
        factor: A number.
    """
    noises, stddevs = _noise_and_stddev(
        noise, means, curvatures, priors, factor
    )
    draws, scores = [], []
    for mean, eps, stddev in zip(means, noises, stddevs, strict=True):
        draws.append(mean + stddev * eps)  # (2)
        scores.append(eps / stddev)
    return draws, scores


def _noise_and_stddev(noise, means, curvatures, priors, factor):
    noises = split_numbers(noise, [m.shape for m in means])
    stddevs = [
        ops.sqrt(ops.cast(factor, s.dtype) / (s + ops.cast(prior, s.dtype)))
        for s, prior in zip(curvatures, priors, strict=True)  # (1)
    ]
    noises = [ops.cast(e, m.dtype) for e, m in zip(noises, means, strict=True)]
    return noises, stddevs


def _compiled_where_it_pays(function, noise, means, *args):
    """Returns `function(noise, means, *args)`."""
    # In one program with the noise, XLA would make the noise again for each
    # result of the function. XLA takes 50 milliseconds for each tensor.
    if len(means) <= _FEW_TENSORS and pays_to_compile(noise.shape[0]):
        return call_shared(
            function, noise, means, *args, sizes=True, compiled=True
        )
    return function(noise, means, *args)
