"""The posterior samples that the arguments of a prediction choose."""

import warnings
from typing import Any

import keras

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_bool
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors._held_posterior import held_posterior
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._average_options import check_link
from keras_bdl.prediction._posterior_draws import PosteriorDraws
from keras_bdl.prediction._reestimate_batch_norm import (
    optional_batch_norm_batches,
)


def chosen_draws(
    model: keras.Model,
    posterior: Posterior | None,
    *,
    samples: Any,
    seed: int,
    batch_norm_data: Data | None,
    batch_norm_fraction: float,
    linearized: bool | None,
    link: str | None,
) -> PosteriorDraws:
    """Returns the samples that the arguments of `keras_bdl.predict` choose.

    Args:
        model: A built Keras model.
        posterior: Argument of `keras_bdl.predict`, like all that follow.
        samples: Number of samples.
        seed: Selects the samples.
        batch_norm_data: Data for BatchNorm statistics.
        batch_norm_fraction: Fraction of these data.
        linearized: Whether to make the network linear in its weights.
        link: How to use the Gaussian of the outputs.
    """
    batches = optional_batch_norm_batches(
        model, batch_norm_data, batch_norm_fraction
    )
    posterior = _found(model, posterior)
    linearized = _is_linearized(posterior, linearized)
    check_link(link, linearized=linearized, samples=samples)
    return PosteriorDraws(
        model,
        posterior,
        samples=samples,
        seed=seed,
        batch_norm_batches=batches,
        linearized=linearized,
        link=link,
    )


def _found(model, posterior):
    """Returns the posterior to use, or `None` for the trained weights.

    If an optimizer trained the model without noise, `None` selects the trained
    weights: training has not used samples of the posterior.
    """
    if posterior is None:
        return held_posterior(model, trained_with_noise=True)
    if not isinstance(posterior, Posterior):
        raise ValueError(
            "`posterior` must be a `keras_bdl.extend.Posterior`, such as "
            "the `posterior` attribute of a callback, or `None`. "
            f"Received: posterior={posterior!r} of type "
            f"{type(posterior).__name__}"
        )
    return posterior


def _is_linearized(posterior, linearized):
    """Returns whether the network is linear in its weights."""
    if linearized is None:
        if isinstance(posterior, Mixture) and any(
            c.linearized_by_default for c in posterior.components
        ):
            warnings.warn(
                "A mixture is not linearised, and a component is a `Laplace`, "
                "whose samples of all weights predict badly in the network "
                "itself. Predict with each component, and average the "
                "predictions. Pass `linearized=False` to silence this. "
                f"Received: posterior={posterior}",
                stacklevel=4,
            )
        return posterior is not None and posterior.linearized_by_default
    check_bool("linearized", linearized)
    if linearized and (posterior is None or not posterior.can_be_linearized):
        raise ValueError(
            "`linearized=True` needs a posterior with a mean, such as "
            "`Laplace` or `Gaussian`. An ensemble, a mixture and MC dropout "
            "have none around which a network is linear. "
            f"Received: posterior={posterior}"
        )
    return linearized
