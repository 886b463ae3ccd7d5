"""What the objectives with a Gaussian posterior have in common."""

import functools
import math

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl.arguments import check_number
from keras_bdl.arguments import check_seed
from keras_bdl.curvature.weight_scope import WeightScope
from keras_bdl.curvature.weight_scope import current_values
from keras_bdl.distributions import MeanField
from keras_bdl.objectives.covariance import Covariance
from keras_bdl.objectives.objective import Objective
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors.covered_weights import check_weights
from keras_bdl.posteriors.covered_weights import excluded_variables
from keras_bdl.random.weight_noise import EVALUATION
from keras_bdl.random.weight_noise import Compilation
from keras_bdl.random.weight_noise import normal_numbers
from keras_bdl.random.weight_noise import random_bits


class GaussianObjective(Objective):
    """Base of the objectives that fit a Gaussian q over the weights.

        w = mu + sigma eps,   eps ~ N(0, I)                               (1)

    mu are the weights of the model. The complexity is `KL(q || prior)`.

    Args:
        covariance: See `TaylorVI`, as all others.
        stddev: See there.
        learning_rate_equivalent: See there.
        gradient_batch_size: See there.
        prior: See there.
        temperature: See there.
        dataset_size: See there.
        exclude_from_inference: See there.
        learning_rate_multiplier: See there.
        seed: See there.
    """

    trained_under_draws = False

    def __init__(
        self,
        covariance,
        stddev,
        learning_rate_equivalent,
        gradient_batch_size,
        prior,
        temperature,
        dataset_size,
        exclude_from_inference,
        learning_rate_multiplier,
        seed,
    ):
        super().__init__(
            prior, temperature, dataset_size, exclude_from_inference
        )
        if gradient_batch_size is not None:
            check_number(
                "gradient_batch_size",
                gradient_batch_size,
                at_least=1,
                integer=True,
            )
        check_seed(seed)
        self._covariance = Covariance(
            covariance,
            stddev,
            learning_rate_equivalent,
            gradient_batch_size,
            learning_rate_multiplier,
        )
        self.covariance = covariance
        self.stddev = stddev
        self.learning_rate_equivalent = learning_rate_equivalent
        self.gradient_batch_size = gradient_batch_size
        self.learning_rate_multiplier = learning_rate_multiplier
        self.seed = seed
        self._compilation = Compilation()

    @property
    def trainable_variables(self):
        """The learned standard deviations, as `Covariance` has them."""
        return self._covariance.variables

    @property
    def built(self):
        """Whether there is no variable to make."""
        return self._covariance.built

    def build(self, model):
        """Creates the standard deviations."""
        self._covariance.build(self._inferred(model))

    def check(self, model, inferred):
        """Also refuses weights that cannot have a Gaussian posterior."""
        super().check(model, inferred)
        check_weights(type(self).__name__, inferred, model.trainable_variables)
        self._covariance.check(inferred)

    def kl_divergence(self, model):
        """Returns `KL(q || prior)` of a model, in nats.

        Args:
            model: The `keras_bdl.Model`.
        """
        self.prepare(model)
        inferred = self._inferred(model)

        @functools.cache  # one draw of all weights, and only if need be
        def noises():
            return self.noises(model, inferred, EVALUATION, 0)

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

    def tell(self, model, x, outcomes, complexity):
        """Updates `nll` and `kl`."""
        nll = ops.mean(ops.stack([one.nll for one in outcomes]))
        kl = complexity / self.dataset_size.value()
        model._evidence_bound.update(x, nll, kl)

    def noises(self, model, inferred, stream, number):
        """Returns eps of (1), a tensor for each variable.

        Args:
            model: The `keras_bdl.Model`.
            inferred: The variables that have a posterior.
            stream: `TRAINING` or `EVALUATION` of the draws of weights.
            number: Which draw.
        """
        bits = random_bits(
            sum(math.prod(v.shape) for v in inferred),
            seed=self.seed,
            stream=stream,
            draw=number,
            step=0 if stream == EVALUATION else model.optimizer.iterations,
        )
        return self._compilation.run(
            _normal_numbers_like, bits, current_values(inferred)
        )

    def _drawn(self, positions, values, own, noises):
        """Returns weights by (1), those at other positions as they are."""
        values = list(values)
        stddevs = self._covariance.stddevs(own, len(noises))
        for i, stddev, eps in zip(positions, stddevs, noises, strict=True):
            noise = ops.cast(stddev * eps, values[i].dtype)
            values[i] = values[i] + noise  # (1)
        return values

    def call_with_draw(self, model, x, draw):
        """Returns the outputs under one draw, the same for all batches.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Which draw.
        """
        self.prepare(model, x)
        self._covariance.check_learned(type(self).__name__)
        variables, inferred = model.trainable_variables, self._inferred(model)
        known = {id(v) for v in inferred}
        values = self._drawn(
            [i for i, v in enumerate(variables) if id(v) in known],
            current_values(variables),
            current_values(self.trainable_variables),
            self.noises(model, inferred, EVALUATION, draw),
        )
        scope = WeightScope(variables, values)
        scope.collect_losses = False  # the layers keep them, as ever
        with scope:
            return model._call_for(x, training=False)

    def posterior(self, model):
        """Returns q, a `keras_bdl.posteriors.Gaussian`.

        Args:
            model: The model that was trained.
        """
        self.prepare(model)
        self._covariance.check_learned(type(self).__name__)
        variables, inferred = model.trainable_variables, self._inferred(model)
        stddevs = self._covariance.stddevs(
            current_values(self.trainable_variables), len(inferred)
        )
        of_variable = {
            id(v): np.square(ops.convert_to_numpy(stddev))
            for v, stddev in zip(inferred, stddevs, strict=True)
        }
        return Gaussian(
            [ops.convert_to_numpy(v) for v in variables],
            [
                np.broadcast_to(of_variable.get(id(v), 0.0), v.shape)
                for v in variables
            ],
            names=[v.name for v in variables],
            trained_under_draws=self.trained_under_draws,
        )

    def _inferred(self, model):
        excluded = excluded_variables(model, self.exclude_from_inference)
        return [v for v in model.trainable_variables if id(v) not in excluded]

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


def _normal_numbers_like(bits, tensors):
    return normal_numbers(bits, [t.shape for t in tensors])
