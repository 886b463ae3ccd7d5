"""Vector scaling and isotonic calibration."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator

from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import IsotonicCalibration
from keras_bdl.prediction import TemperatureScaling
from keras_bdl.prediction import VectorScaling
from tests.prediction.test_temperature_scaling import make_data
from tests.prediction.test_temperature_scaling import nll


def test_vector_scaling_minimises_the_likelihood():
    p, y = make_data(temperature=2.0, n=500, classes=3)
    biased = p.log_mean + [0.0, 1.0, -1.0]
    p = ClassificationPrediction(scipy.special.log_softmax(biased, -1))
    q = VectorScaling().fit(p, y)(p)

    def objective(parameters):
        a, b = parameters.reshape(2, 3)
        return nll(scipy.special.log_softmax(a * p.log_mean + b, -1), y)

    best = scipy.optimize.minimize(
        objective, [1.0] * 3 + [0.0] * 3, method="Powell", tol=1e-10
    )
    assert nll(q.log_mean, y) == pytest.approx(best.fun, abs=1e-4)
    assert nll(q.log_mean, y) < nll(p.log_mean, y) - 0.1


def test_vector_scaling_undoes_a_scale_and_offsets():
    p, y = make_data(n=20_000, classes=3)
    b = np.array([0.5, -1.0, 0.5])
    wrong = scipy.special.log_softmax(2.0 * p.log_mean + b, -1)
    scaling = VectorScaling().fit(ClassificationPrediction(wrong), y)
    q = scaling(ClassificationPrediction(wrong))
    # Six parameters gain about 3 / n on the data they are fitted to.
    gain = nll(p.log_mean, y) - nll(q.log_mean, y)
    assert 0 <= gain < 20 / len(y)
    np.testing.assert_allclose(scaling.scale, 0.5, rtol=0.1)
    np.testing.assert_allclose(scaling.offset, -b / 2, atol=0.1)
    assert scaling.offset.sum() == pytest.approx(0.0, abs=1e-9)
    assert q.num_samples == 1


class Predicts(DummyClassifier):
    """A classifier of scikit-learn whose inputs are its probabilities."""

    def predict_proba(self, X):
        return np.asarray(X)


def test_isotonic_calibration_is_that_of_scikit_learn():
    p, y = make_data(temperature=2.5, n=3000)
    other, _ = make_data(temperature=2.5, n=200, seed=1)
    classifier = Predicts().fit(p.mean, y)
    theirs = CalibratedClassifierCV(
        FrozenEstimator(classifier), method="isotonic", ensemble=False
    ).fit(p.mean, y)
    q = IsotonicCalibration().fit(p)(other)
    # Ours are never 0, by 1 / (n + 2) in each class.
    np.testing.assert_allclose(
        q.mean, theirs.predict_proba(other.mean), atol=4 / 3002
    )
    assert q.mean.min() > 0
    np.testing.assert_allclose(q.mean.sum(-1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("kind", [VectorScaling, IsotonicCalibration])
def test_errors_are_clear(kind):
    p, y = make_data(n=50)
    with pytest.raises(RuntimeError, match="is not fitted yet"):
        kind()(p)
    fitted = kind().fit(p)
    with pytest.raises(ValueError, match="5 classes, and 4 in `fit`"):
        fitted(make_data(n=50, classes=5)[0])
    with pytest.raises(ValueError, match="`prediction`"):
        fitted(y)


@pytest.mark.parametrize(
    "make", [TemperatureScaling, VectorScaling, IsotonicCalibration]
)
def test_calibration_does_not_see_padding(make):
    p, y = make_data(n=400, classes=3)
    kept = np.random.default_rng(0).permutation(600).reshape(100, 6) < 400
    log_mean = np.full((100, 6, 3), [0.0, -np.inf, -np.inf])
    labels = np.full((100, 6), -1)
    log_mean[kept], labels[kept] = p.log_mean, y
    expected = make().fit(p, y)(p)
    for arguments in ({"mask": kept}, {"ignore_class": -1}):
        padded = ClassificationPrediction(log_mean, **arguments)
        found = make().fit(padded, labels)(padded)
        np.testing.assert_allclose(found.mean[kept], expected.mean, rtol=1e-5)
        np.testing.assert_equal(found.mask, padded.mask)
        assert found.ignore_class == padded.ignore_class
