import numpy as np
import pytest
import scipy.optimize
import scipy.special

from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction
from keras_bdl.prediction._calibration import TemperatureScaling


def make_data(temperature=1.0, n=2000, classes=4, seed=0):
    """Labels drawn from a model whose predictions are then sharpened."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, classes))
    cumulative = scipy.special.softmax(logits, -1).cumsum(-1)
    y = (rng.uniform(size=(n, 1)) > cumulative).sum(-1)
    log_mean = scipy.special.log_softmax(logits * temperature, axis=-1)
    return ClassificationPrediction(log_mean, num_samples=7, y=y), y


def nll(log_probs, y):
    return -np.take_along_axis(log_probs, y[:, None], -1).mean()


def test_fit_minimises_the_likelihood():
    p, y = make_data(temperature=2.5)
    fitted = TemperatureScaling().fit(p).temperature

    def objective(log_t):
        scaled = scipy.special.log_softmax(p.log_mean / np.exp(log_t), -1)
        return nll(scaled, y)

    best = scipy.optimize.minimize_scalar(objective, bounds=(-2, 2))
    np.testing.assert_allclose(fitted, np.exp(best.x), rtol=1e-4)
    # The data were sharpened by 2.5; 2000 labels leave an error of some 5 %.
    assert 2.2 < fitted < 2.8


def test_scaling_undoes_sharpening_exactly():
    plain, y = make_data()
    sharp, _ = make_data(temperature=2.5)
    a = TemperatureScaling().fit(plain, y)
    b = TemperatureScaling().fit(sharp, np.eye(4)[y])
    np.testing.assert_allclose(b.temperature / a.temperature, 2.5, rtol=1e-9)
    np.testing.assert_allclose(a(plain).mean, b(sharp).mean, rtol=1e-9)


def test_result_is_the_renormalised_power():
    p, _ = make_data()
    q = TemperatureScaling(temperature=3.0)(p)
    power = p.mean ** (1 / 3)
    np.testing.assert_allclose(q.mean, power / power.sum(-1, keepdims=True))
    np.testing.assert_array_equal(q.predicted_classes, p.predicted_classes)
    np.testing.assert_array_equal(q.y, p.y)


def test_result_is_one_distribution_without_samples():
    q = TemperatureScaling(temperature=3.0)(make_data()[0])
    assert q.num_samples == 1
    assert not q.has_samples
    np.testing.assert_array_equal(q.mutual_information, 0.0)


def test_probability_zero_stays_zero():
    p = ClassificationPrediction.from_probabilities(
        [[1.0, 0.0, 0.0], [0.8, 0.2, 0.0], [0.8, 0.2, 0.0], [0.8, 0.2, 0.0]]
    )
    # The best scaled 0.8 is the share 2/3 of these labels that it is right.
    scaling = TemperatureScaling().fit(p, [0, 0, 0, 1])
    np.testing.assert_allclose(scaling(p).confidence[1:], 2 / 3)
    q = scaling(p)
    np.testing.assert_array_equal(q.mean == 0, p.mean == 0)
    with pytest.raises(ValueError, match="label of probability 0"):
        scaling.fit(p, [1, 0, 0, 1])


def test_labels_that_fix_no_temperature_are_refused():
    p, _ = make_data()
    with pytest.raises(ValueError, match="not the most probable class"):
        TemperatureScaling().fit(p, p.predicted_classes)
    with pytest.raises(ValueError, match="must be better than chance"):
        TemperatureScaling().fit(p, p.log_mean.argmin(-1))


def test_wrong_use_is_refused():
    p, _ = make_data()
    with pytest.raises(RuntimeError, match=r"Call `fit\(prediction, y\)`"):
        TemperatureScaling()(p)
    with pytest.raises(
        ValueError, match="`temperature` must be a number above 0"
    ):
        TemperatureScaling(temperature=0.0)
    for wrong in (np.inf, np.nan, "a"):
        with pytest.raises(
            ValueError, match="`temperature` must be a number above 0"
        ):
            TemperatureScaling(wrong)
    regression = RegressionPrediction([0.0, 1.0])
    with pytest.raises(ValueError, match="`prediction` must.*RegressionPred"):
        TemperatureScaling().fit(regression, [0, 1])
    with pytest.raises(ValueError, match="`prediction` must .* ndarray"):
        TemperatureScaling(2.0)(p.mean)
    with pytest.raises(ValueError, match="`y` must hold one integer"):
        TemperatureScaling().fit(p, [0, 1])
