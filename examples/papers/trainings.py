"""The trainings: from a network to a compiled model with callbacks."""

import dataclasses
import functools
import math
from collections.abc import Callable

import compiling
import keras
from epochs import DrawnValidation
from epochs import PriorCrossEntropy

import keras_bdl as bdl

# Folder for the samples of a chain, inside the folder of its training.
SAMPLES = "samples"


@dataclasses.dataclass(frozen=True)
class Training:
    """A way to train a network.

    Attributes:
        compile: Compiles a network, given its `Settings` and `Data`.
        convert: Returns the network to train, given a network, its `Settings`
            and `Data`. Defaults to `None`, the network itself.
        callbacks: Returns callbacks by name, given a model, its `Settings`,
            `Data` and the folder of the training. Some callbacks have a
            `posterior`.
        posterior: Returns the posterior of a trained model. Defaults to
            `None`: callbacks or layers hold the posterior, or nothing does.
        needs: Names of the settings that this training requires.
    """

    compile: Callable
    convert: Callable | None = None
    callbacks: Callable = lambda *_: {}
    posterior: Callable | None = None
    needs: tuple[str, ...] = ()


def _with_dropout(network, settings, data):
    return bdl.convert(network, "mc_dropout", rate=settings.dropout_rate)


def _drawn_validation(model, settings, data, folder):
    if not settings.drawn_validation:
        return {}
    samples = settings.validation_samples
    return {"validation": DrawnValidation(data.sets["test"], samples)}


def _averages(model, settings, data, folder):
    """Returns callbacks that collect weights along the path of SGD."""
    start, every = settings.start_epoch, {"every": int(settings.every)}
    if settings.every < 1:  # a part of an epoch
        steps = max(int(settings.every * data.steps), 1)
        every = {"every": steps, "unit": "step"}
    return {
        "SWA": bdl.SWA(start, **every),
        # `methods.py` sets the scale of a prediction.
        "SWAG-Diagonal": bdl.SWAG(start, rank=0, scale=1.0, **every),
        "SWAG": bdl.SWAG(start, rank=settings.rank, scale=0.5, **every),
        **_iterates(model, settings, data, folder),
    }


def _iterates(model, settings, data, folder):
    """Returns a callback that keeps weights, if `keep_iterates` is set."""
    if not settings.keep_iterates:
        return {}
    return {
        "iterates": bdl.callbacks.SampleCollector(
            settings.keep_iterates, start_epoch=settings.start_epoch
        )
    }


@keras.saving.register_keras_serializable("keras_bdl_papers")
class RadialRho(keras.initializers.Initializer):
    """The rho with which a Radial tensor has the scale `softplus(rho)`.

    This is the rho of the paper. In our layers, `softplus(rho)` is the standard
    deviation of a weight, and the scale is `sqrt(D)` times as large.
    """

    def __init__(self, rho):
        self.rho = rho

    def __call__(self, shape, dtype=None):
        scale = math.log1p(math.exp(self.rho))
        stddev = scale / math.prod(shape) ** 0.5
        return keras.ops.full(shape, math.log(math.expm1(stddev)), dtype)

    def get_config(self):
        return {"rho": self.rho}


def _variational_layers(kind, network, settings, data):
    rho = settings.initial_rho
    if rho is None:  # the inverse of softplus
        rho = math.log(math.expm1(settings.initial_stddev))
    start = RadialRho if kind == "radial" else keras.initializers.Constant
    return bdl.convert(
        network,
        kind,
        prior=bdl.priors.Normal(settings.prior_stddev),
        rho_initializer=start(rho),
        dataset_size=data.train_size,
        **settings.given("truncation"),
    )


def _first_batch(data, size):
    """Returns the first batch of data in a fixed order."""
    if isinstance(data, tuple):
        return tuple(part[:size] for part in data)
    return next(iter(data))


def _of_layers(model, settings, data, folder):
    callbacks = {}
    if settings.prior_cross_entropy:
        callbacks["cross_entropy"] = PriorCrossEntropy(data.train_size)
    if settings.pretrain_epochs:
        callbacks["means"] = bdl.callbacks.PretrainMeans(
            settings.pretrain_epochs
        )
    if settings.gradient_variance_every:
        x, y = _first_batch(data.statistics, settings.batch_size)
        callbacks["gradient_variance"] = bdl.callbacks.GradientVariance(
            (x, y), every=settings.gradient_variance_every
        )
    return callbacks


def _samples(model, settings, data, folder):
    """Returns a callback that writes the weights at the end of each cycle.

    All samples of the paper's networks need gigabytes. In files, they need no
    memory, and no checkpoint contains them.
    """
    return {
        "samples": bdl.callbacks.SampleCollector(
            settings.cycle_epochs,
            start_epoch=settings.burn_in_epochs,
            directory=folder / SAMPLES,
        )
    }


def _ordinarily(convert=None, callbacks=lambda *_: {}, needs=()):
    return Training(
        compiling.ordinary, convert, callbacks, needs=("optimizer", *needs)
    )


def _layers(kind):
    convert = functools.partial(_variational_layers, kind)
    needs = "optimizer", "prior_stddev", "initial_rho or initial_stddev"
    return Training(compiling.variational, convert, _of_layers, needs=needs)


def _of_optimizer(optimizer):
    compile = functools.partial(compiling.natural, optimizer)
    needs = ("prior_precision or l2",)
    return Training(compile, posterior=bdl.posterior_of, needs=needs)


def _of_objective(objective):
    compile = functools.partial(compiling.objective, objective)
    needs = "optimizer", "covariance"
    return Training(compile, posterior=bdl.posterior_of, needs=needs)


def _of_sampler(sampler):
    compile = functools.partial(compiling.sampler, sampler)
    needs = "cycle_epochs", "burn_in_epochs"
    return Training(compile, callbacks=_samples, needs=needs)


AVERAGES = "start_epoch", "every", "rank"
TRAININGS = {
    "SGD": _ordinarily(callbacks=_iterates),
    "SGD + BatchNorm": _ordinarily(),
    "Adam": _ordinarily(),
    "MC dropout": _ordinarily(
        _with_dropout, _drawn_validation, ("dropout_rate",)
    ),
    "SWA": _ordinarily(None, _averages, AVERAGES),
    "SWA-Drop": _ordinarily(
        _with_dropout, _averages, ("dropout_rate", *AVERAGES)
    ),
    "BBB": _layers("mean_field"),
    "MFVI": _layers("mean_field"),
    "MFVI with tweaks": _layers("mean_field"),
    "MFVI, truncated": _layers("mean_field"),
    "Radial BNN": _layers("radial"),
    "OGN": _of_optimizer(bdl.OGN),
    "VOGN": _of_optimizer(bdl.VOGN),
    "K-FAC": _of_optimizer(bdl.KFAC),
    "Noisy K-FAC": _of_optimizer(bdl.NoisyKFAC),
    "MAP": Training(
        functools.partial(compiling.objective, bdl.objectives.MAP),
        needs=("optimizer",),
    ),
    "Taylor VI": _of_objective(bdl.objectives.TaylorVI),
    "Sampled VI": _of_objective(bdl.objectives.SampledVI),
    "ATMC": _of_sampler(bdl.ATMC),
    "SGNHT": _of_sampler(bdl.SGNHT),
}


def check(training, settings, where):
    """Ends the program with an error message if a needed setting is missing.

    Args:
        training: Name of the training.
        settings: The `Settings`.
        where: Names of the cell, for the error message.
    """
    for need in TRAININGS[training].needs:
        names = need.split(" or ")
        if not settings.given(*names):
            raise SystemExit(
                f"{where}: the training {training!r} needs the setting "
                f"{need}. Give it in the recipe or in `chosen.toml`."
            )
