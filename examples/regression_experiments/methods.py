"""The methods of the regressions.

A method trains its networks and returns a function that predicts.
"""

import functools

import keras
import numpy as np
import sklearn.gaussian_process as gp
import sklearn.linear_model

import keras_bdl as bdl

DROPOUT = 0.05


def deterministic(nets, split):
    model = nets.mode(split)
    return lambda x: nets.predict(split, x, model)


def mc_dropout(nets, split):
    model = nets.fit(
        split,
        ("dropout", 0),
        functools.partial(nets.architecture, "dropout", DROPOUT),
        functools.partial(nets.adam, nets.epochs),
        nets.epochs,
    )
    dropout = bdl.posteriors.MCDropout()
    return lambda x: nets.predict(split, x, model, dropout)


def deep_ensemble(nets, split):
    models = [nets.mode(split, member) for member in range(nets.members)]
    ensemble = bdl.posteriors.Ensemble.from_models(models)
    return lambda x: nets.predict(split, x, models[0], ensemble)


def swag(nets, split):
    epochs = 2 * nets.epochs
    collector = bdl.SWAG(start_epoch=epochs // 2, rank=20)
    rate = bdl.schedules.SWASchedule(
        *nets.settings.swag_rates, swa_start_step=epochs * nets.steps // 2
    )
    model = nets.fit(
        split,
        ("SWAG", 0),
        functools.partial(nets.architecture, "SWAG"),
        functools.partial(
            keras.optimizers.SGD, rate, momentum=0.9, clipnorm=1.0
        ),
        epochs,
        [collector],
    )
    return lambda x: nets.predict(split, x, model, collector.posterior)


def variational(kind, nets, split):
    model = nets.distribution(split, kind)
    posterior = bdl.posteriors.Layerwise(model)
    return lambda x: nets.predict(split, x, model, posterior)


def radial_ensemble(nets, split):
    models = [
        nets.distribution(split, "radial", member)
        for member in range(nets.members)
    ]
    mixture = bdl.posteriors.Mixture(
        [bdl.posteriors.Layerwise(model) for model in models]
    )
    return lambda x: nets.predict(split, x, models[0], mixture)


def sampling(sampler, nets, split):
    # Each cycle ends with a sample; the first third is burn-in.
    epochs = 3 * nets.settings.cycle * nets.samples // 2
    cycle = bdl.schedules.CyclicalCosine(0.03, nets.settings.cycle * nets.steps)
    collector = bdl.callbacks.SampleCollector(cycle, start_epoch=epochs // 3)
    optimizer = functools.partial(
        sampler,
        cycle,
        dataset_size=split.size,
        average_speed=nets.settings.speed,
        max_speed=None,
        prior=nets.prior("sampling"),
    )
    name = sampler.__name__
    model = nets.fit(
        split, (name, 0), nets.architecture, optimizer, epochs, [collector]
    )
    return lambda x: nets.predict(split, x, model, collector.posterior)


def gaussian_process(nets, split):
    """Gaussian process of scikit-learn, with the most probable kernel."""
    kernel = gp.kernels.ConstantKernel() * gp.kernels.RBF()
    kernel += gp.kernels.WhiteKernel()
    model = gp.GaussianProcessRegressor(kernel).fit(*split.standard)
    noise = np.exp(model.kernel_.theta[-1])

    def predict(x):
        mean, stddev = model.predict(split.inputs(x), return_std=True)
        between = np.maximum(stddev**2 - noise, 0.0)
        return as_prediction(split, mean, between, noise)

    return predict


def linear(nets, split):
    """Bayesian linear regression of scikit-learn."""
    x, y = split.standard
    model = sklearn.linear_model.BayesianRidge().fit(x, y.ravel())

    def predict(x):
        mean, stddev = model.predict(split.inputs(x), return_std=True)
        noise = 1.0 / model.alpha_
        return as_prediction(split, mean, stddev**2 - noise, noise)

    return predict


def as_prediction(split, mean, between, noise):
    prediction = bdl.prediction.RegressionPrediction(
        mean[:, None],
        variance_between=between[:, None],
        variance_within=np.full((len(mean), 1), noise),
    )
    return prediction.rescaled(split.y_stddev, split.y_mean)


REFERENCES = {
    "linear (scikit-learn)": linear,
    "GP (scikit-learn)": gaussian_process,
}
METHODS = {
    "deterministic": deterministic,
    "deep ensemble": deep_ensemble,
    "MC dropout": mc_dropout,
    "SWAG": swag,
    "mean-field": functools.partial(variational, "mean_field"),
    "Radial": functools.partial(variational, "radial"),
    "ensemble of Radial": radial_ensemble,
    "ATMC": functools.partial(sampling, bdl.ATMC),
    "SGHMC": functools.partial(sampling, bdl.SGHMC),
}
