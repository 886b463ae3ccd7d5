"""The methods. Each trains its networks and returns a function that predicts.

Nothing is set but a learning rate that falls along a cosine, unless a comment
says why.
"""

import functools

import keras

import keras_bdl as bdl

SGD_RATE = 0.05
ADAM_RATE = 3e-3


def _sgd(learning_rate):
    return keras.optimizers.SGD(learning_rate, momentum=0.9, weight_decay=5e-4)


def _predicts(model, posterior=None, samples=None):
    """Returns a function that predicts images."""
    return lambda x: bdl.predict(
        model, x, posterior, samples=samples, batch_size=256, verbose=0
    )


def _network(training, member=0, learning_rate=SGD_RATE):
    return training.once(
        ("SGD", member, learning_rate),
        lambda: training.fit(
            training.start(member),
            _sgd(training.cosine(learning_rate)),
            member=member,
        ),
    )


def _averaged(training, member=0):
    """Returns a network and the callbacks that averaged its weights."""

    def train():
        epochs = training.budget.epochs
        start = epochs // 2
        # The learning rate is constant: averages need iterates that move.
        schedule = bdl.schedules.SWASchedule(
            SGD_RATE,
            SGD_RATE,
            swa_start_step=training.steps_per_epoch * start,
        )
        callbacks = {"SWA": bdl.SWA(start), "SWAG": bdl.SWAG(start)}
        model = training.fit(
            training.start(member),
            _sgd(schedule),
            member=member,
            callbacks=callbacks.values(),
        )
        return model, callbacks

    return training.once(("averaged", member), train)


def _variational(training, kind, member=0, learning_rate=ADAM_RATE):
    return training.once(
        (kind, member, learning_rate),
        lambda: training.fit(
            bdl.convert(training.start(member), kind),
            keras.optimizers.Adam(training.cosine(learning_rate)),
            member=member,
        ),
    )


def sgd(training, learning_rate=SGD_RATE):
    return _predicts(_network(training, learning_rate=learning_rate))


def temperature_scaling(training):
    predict = sgd(training)
    x, y = training.task.validation
    held_out = predict(x)
    if all(held_out.predicted_classes == y):
        return predict  # the network makes no error to learn from
    scaling = bdl.prediction.TemperatureScaling().fit(held_out, y)
    return lambda x: scaling(predict(x))


def mc_dropout(training):
    model = training.fit(
        training.start(dropout=0.5), _sgd(training.cosine(SGD_RATE))
    )
    return _predicts(model, bdl.posteriors.MCDropout(), training.budget.samples)


def deep_ensemble(training):
    members = range(training.budget.members)
    networks = [_network(training, member) for member in members]
    ensemble = bdl.posteriors.Ensemble.from_models(networks)
    return _predicts(networks[0], ensemble)


def laplace(training, **options):
    model = _network(training)
    posterior = bdl.fit_laplace(
        model, training.task.train, verbose=0, **options
    )
    return _predicts(model, posterior, training.budget.samples)


def averaging(training, name):
    model, callbacks = _averaged(training)
    posterior = callbacks[name].posterior
    samples = training.budget.samples if name == "SWAG" else None
    return _predicts(model, posterior, samples)


def multi_swag(training):
    runs = [_averaged(training, m) for m in range(training.budget.members)]
    mixture = bdl.posteriors.Mixture([c["SWAG"].posterior for _, c in runs])
    return _predicts(runs[0][0], mixture, training.budget.samples)


def variational(training, kind, learning_rate=ADAM_RATE):
    model = _variational(training, kind, learning_rate=learning_rate)
    return _predicts(model, samples=training.budget.samples)


def radial_ensemble(training):
    members = range(training.budget.members)
    models = [_variational(training, "radial", member) for member in members]
    posteriors = map(bdl.posteriors.Layerwise, models)
    mixture = bdl.posteriors.Mixture(list(posteriors))
    return _predicts(models[0], mixture, training.budget.samples)


def of_objective(training, objective, learning_rate=ADAM_RATE, **options):
    # TaylorVI needs second derivatives, which ReLU does not have.
    model = training.start(activation="gelu")
    optimizer = keras.optimizers.Adam(training.cosine(learning_rate))
    # Learned variances grow to those of the prior.
    training.fit(model, optimizer, objective=objective("fixed", **options))
    return _predicts(model, samples=training.budget.samples)


def natural(training, optimizer, learning_rate, *, curvature=1.0):
    optimizer = optimizer(training.cosine(learning_rate))
    if curvature != 1.0:  # times the default
        size = len(training.task.train[0])
        default = type(optimizer)(dataset_size=size).start_of_curvature()
        optimizer = type(optimizer)(
            training.cosine(learning_rate),
            initial_curvature=curvature * float(default),
        )
    model = training.fit(training.start(), optimizer)
    return _predicts(model, samples=training.budget.samples)


def sampling(training, sampler, *, warm=False, **options):
    # Trains for twice the epochs. The first quarter is burn-in, and each of 15
    # cycles gives a sample. `warm`: burn-in starts from the weights of SGD.
    cycle = bdl.schedules.CyclicalCosine(1e-3, max(1, training.steps // 10))
    samples = bdl.callbacks.SampleCollector(
        cycle, start_epoch=training.budget.epochs // 2
    )
    trained = _network(training).get_weights() if warm else None
    model = training.start()
    if trained is not None:
        model.set_weights(trained)
    training.fit(
        model, sampler(cycle, **options), epochs=2, callbacks=[samples]
    )
    return _predicts(model, samples.posterior)


METHODS = {
    "SGD": sgd,
    "temperature scaling": temperature_scaling,
    "MC dropout": mc_dropout,
    "deep ensemble": deep_ensemble,
    "Laplace, last layer": laplace,
    "Laplace, diagonal": functools.partial(
        laplace, subset="all", structure="diagonal"
    ),
    "Laplace, Kronecker": functools.partial(
        laplace, subset="all", structure="kronecker"
    ),
    "SWA": functools.partial(averaging, name="SWA"),
    "SWAG": functools.partial(averaging, name="SWAG"),
    "multi-SWAG": multi_swag,
    "mean-field": functools.partial(variational, kind="mean_field"),
    "Radial": functools.partial(variational, kind="radial"),
    "Radial ensemble": radial_ensemble,
    "VOGN": functools.partial(natural, optimizer=bdl.VOGN, learning_rate=0.05),
    "IVON": functools.partial(natural, optimizer=bdl.IVON, learning_rate=0.05),
    "Noisy K-FAC": functools.partial(
        natural, optimizer=bdl.NoisyKFAC, learning_rate=0.05
    ),
    "Taylor VI": functools.partial(
        of_objective, objective=bdl.objectives.TaylorVI
    ),
    "sampled VI": functools.partial(
        of_objective, objective=bdl.objectives.SampledVI
    ),
    "ATMC": functools.partial(sampling, sampler=bdl.ATMC),
    "SGNHT": functools.partial(sampling, sampler=bdl.SGNHT),
}
