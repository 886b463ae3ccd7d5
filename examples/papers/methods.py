"""The methods: a training, and the posterior that predicts."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

import keras_bdl as bdl


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of a table.

    Attributes:
        training: Name of the training.
        posterior: Returns the posterior of a `Trained`, or of a list of
            several. Defaults to `None`: the weights, or the distributions of
            layers.
        draws: Whether a prediction is an average over posterior samples.
            Defaults to `True`.
        linearized: Argument of `keras_bdl.predict`. Defaults to `None`, the
            default of the posterior.
        members: Number of trainings, each with a seed of its own.
        scaled: Whether the outputs are scaled by a temperature, fitted to
            validation data.
    """

    training: str
    posterior: Callable | None = None
    draws: bool = True
    linearized: bool | None = None
    members: int = 1
    scaled: bool = False


def _saved(name, trained):
    return trained.posterior(name)


def saved(name):
    """Returns a function that reads a saved posterior of a training.

    Args:
        name: Name of the posterior.
    """
    return functools.partial(_saved, name)


def _means(trained):
    """Returns the trained weights as a posterior.

    For such a posterior, `predict` estimates the BatchNorm statistics again.
    The moving statistics of the training lag behind: they are averages over
    earlier steps, with other weights.
    """
    variables = trained.model.trainable_variables
    return bdl.posteriors.Gaussian([v.numpy() for v in variables])


def _scaled(trained):
    """Returns the posterior of SWAG at the scale of the settings."""
    return trained.posterior("SWAG").with_scale(trained.settings.scale)


def _dropout(trained):
    return bdl.posteriors.MCDropout()


def _averaged_dropout(trained):
    """Returns dropout around the average of SWA."""
    average, model = trained.posterior("SWA"), trained.model
    for variable, value in zip(
        model.trainable_variables, average.mean(), strict=True
    ):
        variable.assign(value)
    bdl.prediction.reestimate_batch_norm(model, trained.data.statistics)
    return bdl.posteriors.MCDropout()


def _fit_laplace(trained, **options):
    return bdl.fit_laplace(
        trained.model,
        trained.data.statistics,
        subset="all",
        refinements=0,  # as in the paper
        loss=trained.loss(),
        seed=trained.seed,
        verbose=0,
        **options,
    )


def _laplace(trained):
    return _fit_laplace(
        trained,
        prior_precision="validation",
        validation_data=trained.data.validation,
    )


# Powers of sqrt(10). Samples need narrower posteriors than linear networks.
PRECISIONS = 10.0 ** (np.arange(-4, 17) / 2)


def _sampled_laplace(trained):
    """Returns the posterior with the best samples on validation data.

    `fit_laplace` chooses the prior precision for the linearised network.
    """
    held_out = trained.data.validation
    posterior = _fit_laplace(trained, prior_precision=1.0)
    labels = held_out[1] if isinstance(held_out, tuple) else None
    losses = []
    for precision in PRECISIONS:
        prediction = trained.predict(
            held_out,
            posterior.with_prior_precision(precision),
            samples=trained.settings.samples,
            linearized=False,
        )
        losses.append(bdl.evaluate(prediction, labels).nll)
    best = float(PRECISIONS[np.nanargmin(losses)])
    return posterior.with_prior_precision(best)


def _last_sample(trained):
    samples = trained.posterior("samples")
    return bdl.posteriors.Ensemble([samples.sample(len(samples) - 1)])


def _ensemble(trained):
    members = [one.model for one in trained]
    return bdl.posteriors.Ensemble.from_models(members)


def _mixture(trained):
    return bdl.posteriors.Mixture(
        [bdl.posteriors.Layerwise(one.model) for one in trained]
    )


METHODS = {
    "SGD": Method("SGD", draws=False),
    "SGD + BatchNorm": Method("SGD + BatchNorm", draws=False),
    "SGD-Temp": Method("SGD", draws=False, scaled=True),
    "SGD iterates": Method("SGD", saved("iterates"), draws=False),
    "KFAC-Laplace": Method("SGD", _sampled_laplace, linearized=False),
    "KFAC-Laplace, linearised": Method("SGD", _laplace),
    "Deep Ensemble": Method("SGD", _ensemble, draws=False, members=3),
    "SWA": Method("SWA", saved("SWA"), draws=False),
    "SWA-Temp": Method("SWA", saved("SWA"), draws=False, scaled=True),
    "SWA iterates": Method("SWA", saved("iterates"), draws=False),
    "SWAG-Diagonal": Method("SWA", saved("SWAG-Diagonal")),
    "SWAG": Method("SWA", _scaled),
    "SWA-Drop": Method("SWA-Drop", _averaged_dropout),
    "Adam": Method("Adam", draws=False),
    "MC dropout": Method("MC dropout", _dropout),
    "BBB": Method("BBB"),
    "MFVI": Method("MFVI"),
    "MFVI with tweaks": Method("MFVI with tweaks"),
    "MFVI, truncated": Method("MFVI, truncated"),
    "Radial BNN": Method("Radial BNN"),
    "Radial Ensemble": Method("Radial BNN", _mixture, members=3),
    "OGN": Method("OGN", draws=False),
    "VOGN": Method("VOGN", saved("posterior")),
    "K-FAC": Method("K-FAC", draws=False),
    "Noisy K-FAC": Method("Noisy K-FAC", saved("posterior")),
    "MAP": Method("MAP", _means, draws=False),
    "Taylor VI": Method("Taylor VI", saved("posterior")),
    "Taylor VI, at the means": Method("Taylor VI", _means, draws=False),
    "Sampled VI": Method("Sampled VI", saved("posterior")),
    "Sampled VI, at the means": Method("Sampled VI", _means, draws=False),
    "ATMC, one sample": Method("ATMC", _last_sample, draws=False),
    "ATMC, posterior predictive": Method("ATMC", saved("samples"), draws=False),
    "SGNHT, one sample": Method("SGNHT", _last_sample, draws=False),
    "SGNHT, posterior predictive": Method(
        "SGNHT", saved("samples"), draws=False
    ),
}
