"""The methods: a training, and the posterior that predicts."""

import dataclasses
import functools
from collections.abc import Callable

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
        members: Number of trainings, each with a seed of its own.
        scaled: Whether the outputs are scaled by a temperature, fitted to
            validation data.
    """

    training: str
    posterior: Callable | None = None
    draws: bool = True
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


def _laplace(trained):
    return bdl.fit_laplace(
        trained.model,
        trained.data.statistics,
        subset="all",
        refinements=0,  # as in the paper
        prior_precision="validation",
        validation_data=trained.data.validation,
        loss=trained.loss(),
        seed=trained.seed,
        verbose=0,
    )


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
    "KFAC-Laplace": Method("SGD", _laplace),
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
    "Sampled VI": Method("Sampled VI", saved("posterior")),
    "ATMC, one sample": Method("ATMC", _last_sample, draws=False),
    "ATMC, posterior predictive": Method("ATMC", saved("samples"), draws=False),
    "SGNHT, one sample": Method("SGNHT", _last_sample, draws=False),
    "SGNHT, posterior predictive": Method(
        "SGNHT", saved("samples"), draws=False
    ),
}
