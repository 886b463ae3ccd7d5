"""Predictions and labels that do not fit each other well."""

import numpy as np

from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction


def classified(n=60, classes=5, seed=0, ties=False):
    """Returns probabilities and labels of a model that is too sure."""
    rng = np.random.default_rng(seed)
    true = rng.dirichlet(np.full(classes, 0.6), n)
    probs = true**1.5 + 1e-3
    if ties:
        # Quarters: equal probabilities, and zeros.
        probs = rng.multinomial(4, probs / probs.sum(-1, keepdims=True)) / 4
    probs = probs / probs.sum(-1, keepdims=True)
    y = (rng.uniform(size=(n, 1)) > true.cumsum(-1)).sum(-1)
    return ClassificationPrediction.from_probabilities(
        probs, y=y.clip(0, classes - 1)
    )


def rows(prediction, chosen):
    """Returns some rows of a prediction."""
    if prediction.task == "classification":
        return ClassificationPrediction(
            prediction.log_mean[chosen], y=prediction.y[chosen]
        )
    samples = prediction.samples[:, chosen] if prediction.has_samples else None
    variances = prediction.sample_variances
    return RegressionPrediction(
        prediction.mean[chosen],
        variance_between=prediction.variance_between[chosen],
        variance_within=prediction.variance_within[chosen],
        samples=samples,
        sample_variances=None if variances is None else variances[:, chosen],
        y=prediction.y[chosen],
    )


def regressed(n=60, shape=(), samples=0, seed=0):
    """Returns means, deviations and targets with heavy tails."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(n, *shape))
    stddev = rng.uniform(0.5, 2.0, (n, *shape))
    kept = {}
    if samples:
        kept["samples"] = mean + rng.normal(size=(samples, n, *shape))
        kept["sample_variances"] = rng.uniform(0.5, 1, (samples, n, *shape))
    return RegressionPrediction(
        mean,
        variance_within=stddev**2,
        y=mean + 1.5 * stddev * rng.standard_t(3, (n, *shape)),
        **kept,
    )
