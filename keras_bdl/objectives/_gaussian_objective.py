"""Base class of the objectives with a Gaussian posterior."""

import functools
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_number
from keras_bdl._random._noise import EVALUATION
from keras_bdl._random._noise import draw_numbers
from keras_bdl._random._noise import random_bits
from keras_bdl._random._noise import split_numbers
from keras_bdl._random._seeds import NoiseSeed
from keras_bdl.curvature._weight_scope import WeightScope
from keras_bdl.curvature._weight_scope import current_values
from keras_bdl.distributions import MeanField
from keras_bdl.models._trainer import variables_to_build
from keras_bdl.objectives._batch_outcome import Outcome
from keras_bdl.objectives._covariance import Covariance
from keras_bdl.objectives._objective import Objective
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors._covered_weights import check_weights
from keras_bdl.posteriors._covered_weights import excluded_variables
from keras_bdl.posteriors._covered_weights import learned_variables


class GaussianObjective(NoiseSeed, Objective):
    """Base of the objectives that fit a Gaussian q over the weights.

        w = mu + sigma eps,   eps ~ N(0, I)                               (1)

    mu are the weights of the model. The complexity is `KL(q || prior)`.

    Args:
        covariance: `"fixed"`: one given sigma for all weights; `"scalar"`: a
            learned sigma for each tensor, such as a kernel; `"diagonal"`: a
            learned sigma for each weight.
        stddev: sigma, or the initial value of a learned sigma. Defaults to
            `None`: the value that follows from `learning_rate_equivalent`, or
            else 0.03 if sigma is fixed and 0.01 if it is learned.
        learning_rate_equivalent: eta, in place of `stddev`:
            `sigma^2 = eta / (2 S)`. Needs `gradient_batch_size`. Defaults to
            `None`.
        gradient_batch_size: S of `learning_rate_equivalent`. Defaults to
            `None`.
        learning_rate_multiplier: Factor of the learning rate for the logarithm
            of a learned sigma. Defaults to `10.0`.
        seed: Seed of the samples. Defaults to `None`: a seed drawn when the
            objective is made, which depends on
            `keras.utils.set_random_seed`. The config holds the drawn number.
    """

    trained_under_draws = False

    def __init__(
        self,
        covariance: str,
        stddev: float | None = None,
        *,
        learning_rate_equivalent: float | None = None,
        gradient_batch_size: int | None = None,
        learning_rate_multiplier: float = 10.0,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if gradient_batch_size is not None:
            check_number(
                "gradient_batch_size",
                gradient_batch_size,
                at_least=1,
                integer=True,
            )
        self.choose_seed(seed)
        self._covariance = Covariance(
            covariance,
            stddev,
            learning_rate_equivalent=learning_rate_equivalent,
            gradient_batch_size=gradient_batch_size,
            learning_rate_multiplier=learning_rate_multiplier,
        )
        self.covariance = covariance
        self.stddev = stddev
        self.learning_rate_equivalent = learning_rate_equivalent
        self.gradient_batch_size = gradient_batch_size
        self.learning_rate_multiplier = learning_rate_multiplier

    @property
    def trainable_variables(self) -> list:
        """The variables of the learned standard deviations."""
        return self._covariance.variables

    @property
    def built(self) -> bool:
        """Whether all variables exist."""
        return self._covariance.built

    def build(self, model: keras.Model) -> None:
        """Creates the variables of the learned standard deviations."""
        variables = variables_to_build(model)
        self._covariance.build(self._inferred(model, variables))

    def check(self, model: keras.Model, inferred: list) -> None:
        """Also checks that the weights can have a Gaussian posterior."""
        super().check(model, inferred)
        check_weights(type(self).__name__, inferred, model.trainable_variables)
        self._covariance.check(inferred)

    def kl_divergence(self, model: keras.Model) -> tf.Tensor:
        """Returns `KL(q || prior)` of a model, in nats.

        Args:
            model: The `keras_bdl.Model`.
        """
        self.prepare(model)
        inferred = self._inferred(model, self._learned(model))

        @functools.cache  # one sample of all weights, if any is needed
        def noises():
            return self.noises(model, inferred, stream=EVALUATION, number=0)

        return self._kl_divergence(
            current_values(inferred),
            current_values(self.trainable_variables),
            lambda i: noises()[i],
        )

    def _kl_divergence(self, means, own, noise):
        terms = []
        for i, (mean, stddev) in enumerate(
            zip(means, self._covariance.stddevs(own, len(means)), strict=True)
        ):
            mean = ops.cast(mean, "float32")
            q = MeanField(mean, ops.broadcast_to(stddev, mean.shape))
            terms.append(q.kl_divergence(self.prior, lambda i=i: noise(i)))
        return tf.add_n(terms)

    def update_metrics(
        self,
        model: keras.Model,
        x: Any,
        *,
        outcomes: list[Outcome],
        complexity: Any,
    ) -> None:
        """Updates the metrics `nll` and `kl`."""
        nll = ops.mean(ops.stack([one.nll for one in outcomes]))
        kl = complexity / self.dataset_size.value()
        model.update_evidence_bound(x, nll=nll, kl=kl)

    def noises(
        self, model: keras.Model, inferred: list, *, stream: int, number: int
    ) -> list:
        """Returns eps of (1), a tensor for each variable.

        Args:
            model: The `keras_bdl.Model`.
            inferred: The variables that have a posterior.
            stream: `TRAINING` or `EVALUATION`.
            number: Index of the sample.
        """
        bits = random_bits(
            sum(math.prod(v.shape) for v in inferred),
            seed=self.noise_seed(),
            stream=stream,
            draw=number,
            step=0 if stream == EVALUATION else model.optimizer.iterations,
        )
        numbers = draw_numbers(bits)
        return split_numbers(numbers, [v.shape for v in inferred])

    def _drawn(self, positions, values, own, noises):
        """Returns the weights with samples (1) at the given positions."""
        values = list(values)
        stddevs = self._covariance.stddevs(own, len(noises))
        for i, stddev, eps in zip(positions, stddevs, noises, strict=True):
            noise = ops.cast(stddev * eps, values[i].dtype)
            values[i] = values[i] + noise  # (1)
        return values

    def call_with_draw(self, model: keras.Model, x: Any, draw: int) -> Any:
        """Returns the outputs at one sample, the same sample for all batches.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Index of the sample.
        """
        self.prepare(model, x)
        self._covariance.check_learned(type(self).__name__)
        variables = self._learned(model)
        inferred = self._inferred(model, variables)
        self._covariance.check(inferred)
        known = {id(v) for v in inferred}
        values = self._drawn(
            [i for i, v in enumerate(variables) if id(v) in known],
            current_values(variables),
            current_values(self.trainable_variables),
            self.noises(model, inferred, stream=EVALUATION, number=draw),
        )
        scope = WeightScope(variables, values)
        scope.collect_losses = False  # the layers keep their losses
        with scope:
            return _keras.call_with_training(model, x, training=False)

    def posterior(self, model: keras.Model) -> Gaussian:
        """Returns the posterior q, over all trainable variables.

        Args:
            model: The trained model.
        """
        self.prepare(model)
        self._covariance.check_learned(type(self).__name__)
        variables = self._learned(model)
        inferred = self._inferred(model, variables)
        self._covariance.check(inferred)
        stddevs = self._covariance.stddevs(
            current_values(self.trainable_variables), len(inferred)
        )
        of_variable = {
            id(v): np.square(ops.convert_to_numpy(stddev))
            for v, stddev in zip(inferred, stddevs, strict=True)
        }
        posterior = Gaussian(
            [ops.convert_to_numpy(v) for v in variables],
            [
                np.broadcast_to(of_variable.get(id(v), 0.0), v.shape)
                for v in variables
            ],
            names=[v.name for v in variables],
            trained_under_draws=self.trained_under_draws,
        )
        return posterior.beside_frozen_weights_of(model, variables)

    def _learned(self, model):
        """Returns the weights that were trained, also if frozen now."""
        built = self._covariance.weights
        if built:
            # Excluded variables have no standard deviation.
            excluded = excluded_variables(model, self.exclude_from_inference)
            built += [v for v in model.trainable_variables if id(v) in excluded]
        return learned_variables(model, self.trained_weights, built)

    def _inferred(self, model, variables):
        excluded = excluded_variables(model, self.exclude_from_inference)
        return [v for v in variables if id(v) not in excluded]

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "covariance": self.covariance,
            "stddev": self.stddev,
            "learning_rate_equivalent": self.learning_rate_equivalent,
            "gradient_batch_size": self.gradient_batch_size,
            "learning_rate_multiplier": self.learning_rate_multiplier,
            "seed": self.seed,
        }
