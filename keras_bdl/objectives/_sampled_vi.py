"""Variational inference with samples of the weights."""

from typing import Any

import keras
from keras import ops

from keras_bdl._random._noise import TRAINING
from keras_bdl.objectives._gaussian_objective import GaussianObjective
from keras_bdl.objectives._objective import BatchPass
from keras_bdl.objectives._objective import Outcome


@keras.saving.register_keras_serializable(package="keras_bdl")
class SampledVI(GaussianObjective):
    """Variational inference with samples of the weights.

    Use SampledVI where the warnings of `TaylorVI` apply: any activation works,
    and the estimate of the evidence bound is unbiased. SampledVI fits
    independent Gaussians `q = N(mu, sigma^2)` to the posterior of the weights.
    The means mu are the weights of an ordinary model. The loss is

        loss = nll(mu + sigma eps) + (tau / N) KL(q || p),  eps ~ N(0, I) (1)

    averaged over the `train_samples` samples of `keras_bdl.Model.compile`,
    with nll the mean negative log-likelihood, N the number of examples, p the
    prior and tau the temperature, which multiplies the KL alone. One sample
    serves the whole batch, and every replica has a sample of its own.

    The loss of the model must be the mean negative log-likelihood. The logs
    hold `nll` and `kl`, the KL divided by N. Any Keras optimizer without
    weight decay works. `compile(samples=...)` and `keras_bdl.predict` draw
    from q.

    BatchNorm normalises with the samples. Its moving statistics therefore fit
    posterior samples.

    Args:
        covariance, stddev, learning_rate_equivalent: As in `TaylorVI`.
        gradient_batch_size: S of `learning_rate_equivalent`. Defaults to
            `None`.
        learning_rate_multiplier, temperature, dataset_size: As in `TaylorVI`.
        exclude_from_inference: As in `TaylorVI`.
        prior: p, a prior of `keras_bdl.priors`, or a distribution of
            TensorFlow Probability. A prior without a known expectation
            under a Gaussian is evaluated at the sample. Defaults to `None`:
            `Normal(1.0)`. (Samplers take `None` for a flat prior.)
        seed: Seed of the samples. A sample is a function of (seed, iteration,
            replica, index). Defaults to `None`: a seed drawn when the
            objective is made, which depends on
            `keras.utils.set_random_seed`. The config holds the drawn number.

    Example:

    ```python
    objective = keras_bdl.objectives.SampledVI("scalar")
    model.compile("adam", loss, objective=objective, train_samples=2)
    model.fit(x, y, verbose=0)
    ```

    Reference:
        - [Blundell et al., 2015](https://arxiv.org/abs/1505.05424)
        - Unlu and Aitchison, [Gradient Regularisation as Approximate
          Variational Inference](https://arxiv.org/abs/2011.10443), eq. 20,
          "MCVI"
    """

    trained_under_draws = True

    def data_term(
        self, forward: BatchPass, values: list, own: list
    ) -> list[Outcome]:
        """Returns the `Outcome` of each sample."""
        return [
            forward(self._drawn(forward.inferred, values, own, noises))
            for noises in forward.noises
        ]

    def gradients(
        self, forward: BatchPass, values: list, own: list
    ) -> tuple[list[Outcome], list]:
        """Returns the outcomes of all samples and the mean gradients."""
        model = forward.model
        inferred = [forward.variables[i] for i in forward.inferred]
        # Outside of the tape: the noise has no gradient.
        forward.noises = [
            self.noises(model, inferred, stream=TRAINING, number=number)
            for number in range(model.train_samples)
        ]
        return super().gradients(forward, values, own)

    def complexity(self, forward: BatchPass, values: list, own: list) -> Any:
        """Returns `KL(q || prior)`, or an estimate from the samples.

        If the prior has no known expectation under a Gaussian, the result is
        the mean of an estimate from each sample.
        """
        inferred = [values[i] for i in forward.inferred]
        asked: list[int] = []

        def of_sample(noises: list) -> Any:
            def noise(i: int) -> Any:
                asked.append(i)
                return noises[i]

            return self._kl_divergence(inferred, own, noise)

        first, *others = forward.noises
        terms = [of_sample(first)]
        if asked:  # otherwise all terms are equal
            terms += [of_sample(noises) for noises in others]
        return ops.mean(ops.stack(terms))
