import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.conformal import LAC
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction
from tests.plots.helpers import make_prediction
from tests.plots.helpers import make_regression


def draw_every_one(ax):
    x, regression = make_regression()
    p, q = make_prediction(), make_prediction(seed=1)
    sets = LAC().fit(p)(p)
    return {
        "reliability": lambda: plots.reliability_diagram(p, ax=ax),
        "entropies": lambda: plots.entropy_histograms(p, q, ax=ax),
        "referral": lambda: plots.referral_curve(p, ax=ax),
        "sets": lambda: plots.prediction_sets(sets, ax=ax),
        "bands": lambda: plots.regression_bands(x, regression, ax=ax),
    }


@pytest.mark.parametrize("name", draw_every_one(None))
def test_ax_must_be_axes(name):
    for ax in ("a", plt.figure()):
        with pytest.raises(ValueError, match="`ax` must be Matplotlib axes"):
            draw_every_one(ax)[name]()


@pytest.mark.parametrize("name", draw_every_one(None))
def test_axes_are_created_or_used_and_returned(name, tmp_path):
    made = draw_every_one(None)[name]()
    made.figure.savefig(tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size > 5000
    figures = plt.get_fignums()
    _, ax = plt.subplots()
    assert draw_every_one(ax)[name]() is ax
    assert len(plt.get_fignums()) == len(figures) + 1


def test_wrong_input_is_refused_and_leaves_no_figure():
    p, (x, regression) = make_prediction(), make_regression()
    for message, call in (
        ("must be a `Class", lambda: plots.reliability_diagram(regression)),
        ("'b' must be a `Class", lambda: plots.referral_curve({"b": p.mean})),
        ("at least one", lambda: plots.referral_curve({})),
        (
            r"`y` must hold .*\(2,\)",
            lambda: plots.reliability_diagram(p, [0, 1]),
        ),
        ("`score` must be one", lambda: plots.referral_curve(p, score="f1")),
        (
            "for more than two classes.*3 classes",
            lambda: plots.referral_curve(p, score="auroc"),
        ),
        (
            "classes of `inside`",
            lambda: plots.entropy_histograms(p, make_prediction(classes=4)),
        ),
        ("`prediction` must be a `Regr", lambda: plots.regression_bands(x, p)),
        ("19 numbers", lambda: plots.regression_bands(x[1:], regression)),
        (
            "given together.*x_train alone",
            lambda: plots.regression_bands(x, regression, x_train=x),
        ),
        (
            "20 numbers each.*19",
            lambda: plots.regression_bands(x, regression, truth=x[1:]),
        ),
        ("must be a dict", lambda: plots.regression_comparison(x, regression)),
        (
            "`columns`",
            lambda: plots.regression_comparison(
                x, {"a": regression}, columns=0
            ),
        ),
        (
            "`prediction` must be a `Regr",
            lambda: plots.regression_comparison(x, {"a": p}),
        ),
        ("must be a dict", lambda: plots.comparison(p)),
        (
            r"names of `predictions`, \['a'\].*\['b'\]",
            lambda: plots.comparison({"a": p}, ood={"b": p}),
        ),
        (
            "`y` must hold integers",
            lambda: plots.comparison({"a": p}, y=p.y + 7),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not plt.get_fignums()


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=r'pip install "keras-bdl\[examples\]'
    ):
        plots.reliability_diagram(make_prediction())


def test_plots_leave_out_padding():
    p = make_prediction(num_samples=4)
    kept = np.random.default_rng(0).permutation(180).reshape(45, 4) < 120
    log_mean = np.full((45, 4, 3), -np.log(3))
    y = np.full((45, 4), -1)
    expected = np.full((45, 4), np.nan)
    log_mean[kept], y[kept] = p.log_mean, p.y
    expected[kept] = p.expected_entropy
    padded = ClassificationPrediction(
        log_mean, expected_entropy=expected, num_samples=4, y=y, mask=kept
    )
    for draw in (
        plots.reliability_diagram,
        plots.referral_curve,
        lambda q: plots.entropy_histograms(q, q),
    ):
        shown, again = draw(p), draw(padded)
        for one, other in zip(shown.lines, again.lines, strict=True):
            np.testing.assert_allclose(one.get_xydata(), other.get_xydata())
        for one, other in zip(shown.patches, again.patches, strict=True):
            np.testing.assert_allclose(one.get_xy(), other.get_xy())
    x, q = make_regression()
    hidden = x > 0
    bands = RegressionPrediction(
        q.mean,
        variance_between=q.variance_between,
        mask=~hidden,
    )
    line = plots.regression_bands(x, bands).lines[0]
    np.testing.assert_array_equal(line.get_xdata(), x[~hidden])
    images = np.zeros((2, 3, 4))
    maps = make_prediction(24)
    maps = ClassificationPrediction(
        maps.log_mean.reshape(2, 3, 4, 3),
        y=np.full((2, 3, 4), 1),
        mask=np.broadcast_to(np.arange(4) < 2, (2, 3, 4)),
    )
    figure = plots.segmentation_maps(images, maps, rows=1)
    for ax in figure.axes[1:4]:
        shown = np.ma.getmaskarray(ax.images[0].get_array())
        np.testing.assert_array_equal(shown, ~maps.mask[0])
