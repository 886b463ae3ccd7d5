import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.conformal import LAC
from keras_bdl.conformal import NormalizedResiduals
from keras_bdl.conformal import RiskControl
from tests.plots.helpers import make_prediction
from tests.plots.helpers import make_regression


def test_sets_show_the_share_and_the_coverage_of_each_size():
    p = make_prediction()
    sets = LAC().fit(p, coverage=0.6)(p)
    ax = plots.prediction_sets(sets)
    sizes, inside = sets.sizes, sets.contains()
    shares = [bar.get_height() for bar in ax.patches]
    expected = [100 * np.mean(sizes == s) for s in np.unique(sizes)]
    np.testing.assert_allclose(shares, expected)
    _, coverage = ax.lines[0].get_data()
    expected = [100 * inside[sizes == s].mean() for s in np.unique(sizes)]
    np.testing.assert_allclose(coverage, expected)
    labels = [tick.get_text() for tick in ax.get_xticklabels()]
    assert labels == [str(s) for s in np.unique(sizes)]
    assert ax.lines[-1].get_ydata()[0] == 60.0


def test_controlled_sets_show_the_mean_loss_of_each_size():
    p = make_prediction()
    sets = RiskControl("miscoverage").fit(p, risk=0.3)(p)
    ax = plots.prediction_sets(sets)
    missed = ~sets.membership[np.arange(len(p.y)), p.y]
    expected = [100 * missed[sets.sizes == s].mean() for s in (1, 2)]
    np.testing.assert_allclose(ax.lines[0].get_ydata()[:2], expected)
    assert ax.lines[-1].get_ydata()[0] == 30.0
    assert ax.get_xlabel() == "labels in the set"


def test_intervals_are_drawn_by_width_and_other_things_refused():
    _, p = make_regression()
    intervals = NormalizedResiduals().fit(p, p.mean + 0.1)(p)
    ax = plots.prediction_sets(intervals, p.mean)
    assert len(ax.patches) == 4 and ax.get_xlabel() == "width"
    with pytest.raises(ValueError, match="`sets` must be the result"):
        plots.prediction_sets(p)
