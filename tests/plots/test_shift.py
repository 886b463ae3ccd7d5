import numpy as np
import pytest

from keras_bdl import evaluate
from keras_bdl import plots
from keras_bdl.prediction import RegressionPrediction
from tests.plots.helpers import make_prediction
from tests.plots.helpers import make_regression


def make_shifted(seed=0, kinds=("blur", "fog"), severities=(1, 2, 3)):
    shift = {
        kind: {s: make_prediction(seed=seed + 10 * s + i) for s in severities}
        for i, kind in enumerate(kinds)
    }
    return evaluate(make_prediction(seed=seed), shift=shift)


def test_shift_draws_each_corruption_from_the_unshifted_score():
    report = make_shifted()
    ax = plots.shift(report, score="ece")
    assert [line.get_label() for line in ax.lines] == ["blur", "fog"]
    for line in ax.lines:
        scores = report.shift[line.get_label()]["ece"]
        np.testing.assert_allclose(line.get_xdata(), [0, 1, 2, 3])
        np.testing.assert_allclose(line.get_ydata(), [report.ece, *scores])


def test_shift_of_a_regression_draws_its_crps():
    _, p = make_regression()
    worse = RegressionPrediction(p.mean + 1, y=p.mean)
    report = evaluate(p, p.mean, shift={"fog": worse})
    ax = plots.shift(report)
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_allclose(
        drawn, [report.crps, *report.shift["fog"]["crps"]]
    )
    assert ax.get_ylabel() == "CRPS"
    with pytest.raises(ValueError, match="`score` must be one of.*rmse"):
        plots.shift(report, score="nll")


def test_shift_of_several_reports_draws_their_means_and_one_corruption():
    reports = {"SWAG": make_shifted(), "SGD": make_shifted(seed=5)}
    ax = plots.shift(reports)
    drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
    for name, report in reports.items():
        expected = np.mean([s["nll"] for s in report.shift.values()], axis=0)
        np.testing.assert_allclose(drawn[name][1:], expected)
    assert len(ax.lines) == 2 * (1 + 2)
    ax = plots.shift(reports, corruption="fog", score="accuracy")
    np.testing.assert_allclose(
        ax.lines[0].get_ydata()[1:], reports["SWAG"].shift["fog"]["accuracy"]
    )


def test_wrong_shifts_are_refused():
    uneven = make_shifted()
    uneven.shift["fog"] = make_shifted(severities=(1, 5)).shift["fog"]
    with pytest.raises(ValueError, match="`corruption` must name one.*fog"):
        plots.shift({"a": uneven})
    with pytest.raises(ValueError, match=r"shifted predictions.*shift=\.\.\."):
        plots.shift(evaluate(make_prediction()))
    with pytest.raises(ValueError, match="`corruption` must be one of"):
        plots.shift(uneven, corruption="snow")
    with pytest.raises(ValueError, match="at least one report"):
        plots.shift({})
