"""How a network is trained, for each way of learning."""

import dataclasses
import functools
import math
from collections.abc import Callable

import keras
import learning_rates
from epochs import DrawnValidation
from epochs import PriorCrossEntropy
from initial_variances import times_prior_stddevs

import keras_bdl as bdl

LOSS = functools.partial(
    keras.losses.SparseCategoricalCrossentropy, from_logits=True
)


@dataclasses.dataclass(frozen=True)
class Training:
    """A way of learning.

    Attributes:
        compile: Takes a network, its settings and its data, and compiles it.
        convert: Takes a network, its settings and its data, and returns what
            is trained. Defaults to `None`, the network.
        callbacks: Takes a model, its settings and its data, and returns
            callbacks by name, some of which have a `posterior`.
        posterior: Takes the trained model, and returns its posterior.
            Defaults to `None`: callbacks have it, or the layers, or none.
    """

    compile: Callable
    convert: Callable | None = None
    callbacks: Callable = lambda *_: {}
    posterior: Callable | None = None


def _compiled(network, optimizer, **kwargs):
    nll = bdl.metrics.NegativeLogLikelihood(from_logits=True, name="log_loss")
    network.compile(optimizer, LOSS(), metrics=["accuracy", nll], **kwargs)


def _sgd(settings, data):
    return keras.optimizers.SGD(
        learning_rates.of(settings, data.steps),
        momentum=settings.get("momentum", 0.0),
        nesterov=settings.get("nesterov", False),
    )


def _adam(settings, data):
    return keras.optimizers.Adam(
        learning_rates.of(settings, data.steps),
        beta_1=settings.get("beta_1", 0.9),
        beta_2=settings.get("beta_2", 0.999),
        amsgrad=settings["optimizer"] == "AMSGrad",
    )


OPTIMIZERS = {"SGD": _sgd, "Adam": _adam, "AMSGrad": _adam}


def _optimizer(settings, data):
    return OPTIMIZERS[settings["optimizer"]](settings, data)


def _ordinary(network, settings, data):
    """As Keras knows it, with an L2 term if there is one."""
    kwargs = {}
    l2 = settings.get("l2") or settings.get("weight_decay")
    of_all = settings.get("l2_of_batch_norm", True)
    if l2:
        # l2 w is the gradient of the prior N(0, 1 / (l2 N)).
        kwargs["objective"] = bdl.objectives.MAP(
            bdl.priors.Normal((l2 * data.train_size) ** -0.5),
            dataset_size=data.train_size,
            exclude_from_inference=() if of_all else ("BatchNormalization",),
        )
    _compiled(network, _optimizer(settings, data), **kwargs)


def _with_dropout(network, settings, data):
    rate = settings["dropout_rate"]
    return bdl.convert(network, "mc_dropout", rate=rate)


def _drawn_validation(model, settings, data):
    if not settings.get("drawn_validation"):
        return {}
    draws = settings["validation_samples"]
    return {"validation": DrawnValidation(data.sets["test"], draws)}


def _averages(model, settings, data):
    """What collects the path of SGD."""
    start, every = settings["start_epoch"], {"every": settings["every"]}
    if settings["every"] < 1:  # of an epoch
        steps = max(int(settings["every"] * data.steps), 1)
        every = {"every": steps, "unit": "step"}
    return {
        "SWA": bdl.SWA(start, **every),
        # Scales belong to the predictions: see `methods.py`.
        "SWAG-Diagonal": bdl.SWAG(start, rank=0, scale=1.0, **every),
        "SWAG": bdl.SWAG(start, rank=settings["rank"], scale=0.5, **every),
        **_iterates(model, settings, data),
    }


def _iterates(model, settings, data):
    """The weights at the end of epochs, if they are to be kept."""
    if not settings.get("keep_iterates"):
        return {}
    return {
        "iterates": bdl.callbacks.SampleCollector(
            settings["keep_iterates"],
            start_epoch=settings["start_epoch"],
        )
    }


def _variational_layers(kind, network, settings, data):
    options = {}
    if "truncation" in settings:
        options["truncation"] = settings["truncation"]
    rho = settings.get("initial_rho")
    if rho is None:  # of what softplus makes this standard deviation
        rho = math.log(math.expm1(settings["initial_stddev"]))
    return bdl.convert(
        network,
        kind,
        prior=bdl.priors.Normal(settings["prior_stddev"]),
        rho_initializer=keras.initializers.Constant(rho),
        dataset_size=data.train_size,
        **options,
    )


def _draws(settings):
    """How many draws a step takes, in training and in validation."""
    return {
        "train_samples": settings.get("train_samples", 1),
        "samples": settings["validation_samples"],
    }


def _variational(network, settings, data):
    _compiled(network, _optimizer(settings, data), **_draws(settings))


def _first_batch(data, size):
    """Of data whose order is always the same."""
    if isinstance(data, tuple):
        return tuple(part[:size] for part in data)
    return next(iter(data))


def _of_layers(model, settings, data):
    callbacks = {}
    if settings.get("prior_cross_entropy"):
        callbacks["cross_entropy"] = PriorCrossEntropy(data.train_size)
    if settings.get("pretrain_epochs"):
        callbacks["means"] = bdl.callbacks.PretrainMeans(
            settings["pretrain_epochs"]
        )
    if settings.get("gradient_variance_every"):
        x, y = _first_batch(data.statistics, settings["batch_size"])
        callbacks["gradient_variance"] = bdl.callbacks.GradientVariance(
            x, y, every=settings["gradient_variance_every"]
        )
    return callbacks


NATURAL = ("beta_1", "beta_2", "damping", "augmentation_factor", "update_every")


def _natural(optimizer, network, settings, data):
    """Optimizers that learn a distribution, or its curvature."""
    temperature = settings.get("temperature", 1.0)
    if settings.get("initial_temperature"):
        temperature = bdl.schedules.LinearRamp(
            settings["initial_temperature"],
            temperature,
            end_step=settings["temperature_steps"],
        )
    # An L2 term of the mean loss is a prior.
    precision = settings.get("prior_precision")
    if precision is None:
        precision = settings["l2"] * data.train_size
    optimizer = optimizer(
        learning_rates.of(settings, data.steps),
        dataset_size=data.train_size,
        prior_precision=precision,
        temperature=temperature,
        **{key: settings[key] for key in NATURAL if key in settings},
    )
    _compiled(network, optimizer, **_draws(settings))


def _posterior_of_optimizer(model):
    return model.optimizer.posterior(model)


def _objective(objective, network, settings, data):
    """A Gaussian over the weights, by an objective."""
    options = {
        "dataset_size": data.train_size,
        "temperature": settings.get("temperature", 1.0),
        "prior": bdl.priors.HeNormal(),
    }
    if objective is not bdl.objectives.MAP:
        options["covariance"] = settings["covariance"]
        if settings["covariance"] == "fixed":
            options["stddev"] = settings["variance"] ** 0.5
    ratio = settings.get("initial_variance_ratio")
    if ratio:
        options["stddev"] = ratio**0.5
    _compiled(
        network, _optimizer(settings, data), objective=objective(**options)
    )
    if ratio:
        times_prior_stddevs(network, options["prior"])


def _posterior_of_objective(model):
    return model.objective.posterior(model)


SPEEDS = ("average_speed", "max_speed", "friction")


def _sampler(sampler, network, settings, data):
    """A Markov chain, whose steps go up and down."""
    optimizer = sampler(
        bdl.schedules.CyclicalCosine(
            settings["learning_rate"], settings["cycle_epochs"] * data.steps
        ),
        dataset_size=data.train_size,
        temperature=settings.get("temperature", 1.0),
        **{key: settings[key] for key in SPEEDS},
    )
    _compiled(network, optimizer)


def _samples(model, settings, data):
    """The ends of the cycles."""
    return {
        "samples": bdl.callbacks.SampleCollector(
            settings["cycle_epochs"], start_epoch=settings["burn_in_epochs"]
        )
    }


def _layers(kind):
    convert = functools.partial(_variational_layers, kind)
    return Training(_variational, convert, _of_layers)


def _of_optimizer(optimizer):
    compile = functools.partial(_natural, optimizer)
    return Training(compile, posterior=_posterior_of_optimizer)


def _of_objective(objective):
    compile = functools.partial(_objective, objective)
    return Training(compile, posterior=_posterior_of_objective)


def _of_sampler(sampler):
    compile = functools.partial(_sampler, sampler)
    return Training(compile, callbacks=_samples)


TRAININGS = {
    "SGD": Training(_ordinary, callbacks=_iterates),
    "SGD + BatchNorm": Training(_ordinary),
    "Adam": Training(_ordinary),
    "MC dropout": Training(_ordinary, _with_dropout, _drawn_validation),
    "SWA": Training(_ordinary, callbacks=_averages),
    "SWA-Drop": Training(_ordinary, _with_dropout, _averages),
    "BBB": _layers("mean_field"),
    "MFVI": _layers("mean_field"),
    "MFVI with tweaks": _layers("mean_field"),
    "MFVI, truncated": _layers("mean_field"),
    "Radial BNN": _layers("radial"),
    "OGN": _of_optimizer(bdl.OGN),
    "VOGN": _of_optimizer(bdl.VOGN),
    "K-FAC": _of_optimizer(bdl.KFAC),
    "Noisy K-FAC": _of_optimizer(bdl.NoisyKFAC),
    "MAP": Training(functools.partial(_objective, bdl.objectives.MAP)),
    "Taylor VI": _of_objective(bdl.objectives.TaylorVI),
    "Sampled VI": _of_objective(bdl.objectives.SampledVI),
    "ATMC": _of_sampler(bdl.ATMC),
    "SGNHT": _of_sampler(bdl.SGNHT),
}
