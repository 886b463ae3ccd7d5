"""Variational inference by draws of the weights."""

import keras
import tensorflow as tf

from keras_bdl.objectives.gaussian_objective import GaussianObjective
from keras_bdl.random.weight_noise import TRAINING


@keras.saving.register_keras_serializable(package="keras_bdl")
class SampledVI(GaussianObjective):
    """Variational inference by draws: the Monte-Carlo twin of `TaylorVI`.

    Fits independent Gaussians `q = N(mu, sigma^2)` to the posterior of the
    ordinary weights mu of an ordinary model, by an unbiased estimate of the
    evidence bound,

        loss = nll(mu + sigma eps) + (tau / N) KL(q || p),  eps ~ N(0, I) (1)

    averaged over `train_samples` draws of eps, see
    `keras_bdl.Model.compile`. Each draw is one for the whole batch, and
    another one on every replica. The symbols, the arguments and what holds
    for loss, optimizer and logs are as in `TaylorVI`.

    Any activation will do. BatchNorm sees the drawn weights, in training and
    so in its moving statistics, which fit draws from q.

    Args:
        covariance: As of `TaylorVI`, as all others but
        stddev: See there. Defaults to `None`.
        learning_rate_equivalent: See there. Defaults to `None`.
        gradient_batch_size: S of `learning_rate_equivalent`, which alone
            needs it. Defaults to `None`.
        prior: p, anything that `keras_bdl.priors.get` takes; where the
            expectation under a Gaussian is not known, it is taken at the
            draw. Defaults to `None`: `Normal(1.0)`.
        temperature: See there. Defaults to `1.0`.
        dataset_size: See there. Defaults to `None`.
        exclude_from_inference: See there. Defaults to
            `("BatchNormalization",)`.
        learning_rate_multiplier: See there. Defaults to `10.0`.
        seed: Seed of the draws, a function of which, of the iteration, the
            replica and the draw they are. Defaults to `0`.

    Example:

    ```python
    model = keras_bdl.Model(net.inputs, net.outputs)
    model.compile(
        "adam",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        objective=keras_bdl.objectives.SampledVI("scalar"),
        train_samples=2,
    )
    ```

    Reference:
        - [Blundell et al., 2015](https://arxiv.org/abs/1505.05424)
        - Unlu and Aitchison, [Gradient Regularisation as Approximate
          Variational Inference](https://arxiv.org/abs/2011.10443), eq. 20,
          "MCVI"
    """

    trained_under_draws = True

    def __init__(
        self,
        covariance: str,
        stddev: float | None = None,
        learning_rate_equivalent: float | None = None,
        gradient_batch_size: int | None = None,
        prior=None,
        temperature=1.0,
        dataset_size: int | None = None,
        exclude_from_inference=("BatchNormalization",),
        learning_rate_multiplier: float = 10.0,
        seed: int = 0,
    ):
        super().__init__(
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
        )

    def look(self, forward, values, own):
        """Returns the outcome of each draw."""
        return [
            forward(self._drawn(forward.inferred, values, own, noises))
            for noises in forward.noises
        ]

    def gradients(self, forward, values, own):
        """Returns the outcomes of all draws, and the mean gradients."""
        model = forward.model
        inferred = [forward.variables[i] for i in forward.inferred]
        # Outside of the tape: no gradient goes through them.
        forward.noises = [
            self.noises(model, inferred, TRAINING, number)
            for number in range(model.train_samples)
        ]
        return super().gradients(forward, values, own)

    def complexity(self, forward, values, own):
        """Returns `KL(q || prior)`, its mean over the draws if need be."""
        inferred = [values[i] for i in forward.inferred]
        asked = []

        def of_draw(noises):
            def noise(i):
                asked.append(i)
                return noises[i]

            return self._kl_divergence(inferred, own, noise)

        first, *others = forward.noises
        terms = [of_draw(first)]
        if asked:  # otherwise all are the same
            terms += [of_draw(noises) for noises in others]
        return tf.add_n(terms) / len(terms)
