"""Predictions to draw."""

import numpy as np

from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction


def make_prediction(n=120, classes=3, seed=0, num_samples=1):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.3), size=n)
    return ClassificationPrediction.from_probabilities(
        probs,
        expected_entropy=rng.uniform(0, 0.2, n) if num_samples > 1 else None,
        num_samples=num_samples,
        y=np.random.default_rng(9).integers(classes, size=n),
    )


def make_regression(n=20):
    x = np.linspace(-1, 1, n)
    between = 0.09 * (2 + x[:, None])
    within = np.full((n, 1), 0.16)
    return x, RegressionPrediction(
        np.sin(x)[:, None],
        variance_between=between,
        variance_within=within,
        num_samples=5,
    )
