"""Ways to compile a network: with a loss, an optimizer and an objective."""

import functools

import keras
import learning_rates
from initial_variances import times_prior_stddevs

import keras_bdl as bdl

LOSS = functools.partial(
    keras.losses.SparseCategoricalCrossentropy, from_logits=True
)


def _compiled(network, optimizer, **kwargs):
    nll = bdl.metrics.NegativeLogLikelihood(from_logits=True, name="log_loss")
    # On a TPU, the last batch of a validation is padded with weight 0.
    metrics = ["accuracy", nll]
    network.compile(optimizer, LOSS(), weighted_metrics=metrics, **kwargs)


def _sgd(settings, data):
    return keras.optimizers.SGD(
        learning_rates.of(settings, data.steps),
        momentum=settings.momentum,
        nesterov=settings.nesterov,
    )


def _adam(settings, data):
    return keras.optimizers.Adam(
        learning_rates.of(settings, data.steps),
        amsgrad=settings.optimizer == "AMSGrad",
        **settings.given("beta_1", "beta_2"),
    )


OPTIMIZERS = {"SGD": _sgd, "Adam": _adam, "AMSGrad": _adam}


def _optimizer(settings, data):
    return OPTIMIZERS[settings.optimizer](settings, data)


def ordinary(network, settings, data):
    """Compiles with a Keras optimizer, and with the L2 term if one is set."""
    kwargs = {}
    l2, of_all = settings.l2_or_weight_decay, settings.l2_of_batch_norm
    if l2:
        # l2 w is the gradient of the prior N(0, 1 / (l2 N)).
        kwargs["objective"] = bdl.objectives.MAP(
            bdl.priors.Normal((l2 * data.train_size) ** -0.5),
            dataset_size=data.train_size,
            exclude_from_inference=() if of_all else ("BatchNormalization",),
        )
    _compiled(network, _optimizer(settings, data), **kwargs)


def samples_of_step(settings, replicas):
    """Returns `train_samples` and `sample_replicas` of `compile`.

    In the paper of VOGN, P processes share a batch, and each of them draws K
    samples: a step has K P samples, and each example has K of them. Replicas
    draw samples of their own too. With R replicas, each draws K P / R samples,
    rounded up. If R is a multiple of P, R / P replicas get the same examples,
    and each example has K samples as in the paper. With fewer replicas than
    processes, each example has more.

    Args:
        settings: The `Settings`; `train_samples` is K, `processes` is P.
        replicas: Number R of replicas.
    """
    processes = settings.processes
    together = replicas // processes if replicas % processes == 0 else 1
    return -(-settings.train_samples * processes // replicas), together


def _sampling(network, optimizer, settings, train_samples, together=1):
    """Compiles with the numbers of samples in training and validation."""
    _compiled(
        network,
        optimizer,
        train_samples=train_samples,
        samples=settings.validation_samples,
        sample_replicas=together,
    )


def variational(network, settings, data):
    """Compiles a network of variational layers."""
    optimizer = _optimizer(settings, data)
    _sampling(network, optimizer, settings, settings.train_samples)


NATURAL = ("beta_1", "beta_2", "damping", "augmentation_factor", "update_every")


def natural(kind, network, settings, data):
    """Compiles with an optimizer that learns a distribution or a curvature."""
    temperature = settings.temperature
    if settings.initial_temperature:
        temperature = bdl.schedules.LinearRamp(
            settings.initial_temperature,
            temperature,
            end_step=settings.temperature_steps,
        )
    # An L2 term of the mean loss is a prior of precision l2 N.
    precision = settings.prior_precision
    if precision is None:
        precision = settings.l2 * data.train_size
    given = settings.given(*NATURAL)
    if issubclass(kind, bdl.VOGN):  # in the paper, every step has its curvature
        given["curvature_every"] = 1
    optimizer = kind(
        learning_rates.of(settings, data.steps),
        dataset_size=data.train_size,
        prior_precision=precision,
        temperature=temperature,
        initial_curvature=settings.initial_curvature or "first_batch",
        **given,
    )
    if kind in (bdl.VOGN, bdl.NoisyKFAC):
        replicas = network.distribute_strategy.num_replicas_in_sync
        counts = samples_of_step(settings, replicas)
    else:  # without noise, all samples are equal
        counts = settings.train_samples, 1
    _sampling(network, optimizer, settings, *counts)


def objective(kind, network, settings, data):
    """Compiles with an objective that learns a Gaussian over the weights."""
    options = {
        "dataset_size": data.train_size,
        "temperature": settings.temperature,
        "prior": bdl.priors.HeNormal(),
    }
    if kind is not bdl.objectives.MAP:
        options["covariance"] = settings.covariance
        if settings.covariance == "fixed":
            options["stddev"] = settings.variance**0.5
    ratio = settings.initial_variance_ratio
    if ratio:
        options["stddev"] = ratio**0.5
    _compiled(network, _optimizer(settings, data), objective=kind(**options))
    if ratio:
        times_prior_stddevs(network, options["prior"])


def sampler(kind, network, settings, data):
    """Compiles with a sampler whose step size follows cycles."""
    optimizer = kind(
        bdl.schedules.CyclicalCosine(
            settings.learning_rate, settings.cycle_epochs * data.steps
        ),
        dataset_size=data.train_size,
        temperature=settings.temperature,
        prior=None,  # the network has its priors, other weights none
        **settings.given("average_speed", "max_speed", "friction"),
    )
    _compiled(network, optimizer)
