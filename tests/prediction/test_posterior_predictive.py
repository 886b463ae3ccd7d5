"""A `PosteriorPredictive` is a loop over posterior samples in one model."""

import keras
import numpy as np
import pytest

from keras_bdl.posteriors import Gaussian
from keras_bdl.prediction import PosteriorPredictive
from tests.posteriors.test_contracts import KINDS
from tests.posteriors.test_contracts import built

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 2)).astype("float32")


def loop(model, posterior, x=X, samples=4, seed=0):
    """Returns the output of each sample, from the model itself."""
    outputs = []
    for draw in posterior.seeds(seed, samples):
        with posterior.sampled(model, draw):
            output = model(x, training=False)
            outputs.append(keras.tree.map_structure(np.array, output))
    return outputs


def softmax(logits):
    return np.array(keras.ops.softmax(np.float64(logits)))


def entropy(p):
    return -np.sum(p * np.log(p), -1)


def gaussian(model, variance=0.1, only=None):
    mean = [np.array(v) for v in model.trainable_variables]
    variances = [
        np.full(m.shape, variance) if only is None or i in only else None
        for i, m in enumerate(mean)
    ]
    return Gaussian(mean, variances)


@pytest.mark.filterwarnings("ignore:.*BatchNorm statistics")
@pytest.mark.parametrize("kind", KINDS)
def test_every_posterior_gives_the_average_of_a_loop(kind):
    model, posterior = built(kind)
    predictive = PosteriorPredictive(
        model,
        posterior,
        samples=4,
        outputs=("mean", "variance_between", "samples"),
        task="regression",
        linearized=False,
    )
    outputs = np.stack(loop(model, posterior, samples=4))
    for _ in range(2):
        p = predictive(X)
        np.testing.assert_allclose(p["mean"], outputs.mean(0), 1e-5, 1e-5)
        variance = outputs.var(0)
        np.testing.assert_allclose(p["variance_between"], variance, 1e-4, 1e-5)
        if not posterior.is_point:
            samples = np.sort(np.swapaxes(p["samples"], 0, 1), 0)
            expected = np.sort(outputs, 0)
            np.testing.assert_allclose(samples, expected, 1e-5, 1e-5)
