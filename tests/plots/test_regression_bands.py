import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.prediction import RegressionPrediction
from tests.plots.helpers import make_regression


def test_epistemic_band_lies_inside_the_total_band():
    x, regression = make_regression()
    order = np.random.default_rng(0).permutation(len(x))
    shuffled = RegressionPrediction(
        regression.mean[order],
        variance_between=regression.variance_between[order],
        variance_within=regression.variance_within[order],
    )
    ax = plots.regression_bands(
        x[order], shuffled, x_train=[0.0], y_train=[0.1], width=2
    )
    for band, variance in zip(
        ax.collections,
        (regression.variance, regression.variance_between),
        strict=True,
    ):
        corners = band.get_paths()[0].vertices
        upper = [corners[np.isclose(corners[:, 0], t), 1].max() for t in x]
        expected = np.sin(x) + 2 * np.sqrt(variance[:, 0])
        np.testing.assert_allclose(upper, expected)
    np.testing.assert_allclose(ax.lines[0].get_xydata()[:, 0], x)


def test_truth_is_drawn_at_its_inputs_with_its_noise():
    x, regression = make_regression()
    mean, stddev = np.exp(x), 0.1 + x**2
    ax = plots.regression_bands(x[::-1], regression, truth=mean[::-1])
    drawn = {line.get_label(): line.get_xydata() for line in ax.lines}
    assert set(drawn) == {"mean", "truth"}
    np.testing.assert_allclose(drawn["truth"], np.stack([x, mean], 1))
    ax = plots.regression_bands(x, regression, truth=(mean, stddev), width=3)
    _, truth, above, below = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(truth, mean)
    np.testing.assert_allclose(above, mean + 3 * stddev)
    np.testing.assert_allclose(below, mean - 3 * stddev)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_legend_of_regressions_lies_inside_the_figure(columns):
    x, regression = make_regression()
    figure = plots.regression_comparison(
        x,
        {f"method {i}": regression for i in range(columns)},
        x_train=x,
        y_train=np.sin(x),
        truth=(np.sin(x), np.full(20, 0.5)),
    )
    figure.canvas.draw()
    (legend,) = figure.legends
    low, high = legend.get_window_extent().get_points()
    assert (low >= 0).all() and (high <= figure.bbox.size).all()


def test_regressions_side_by_side_share_axes_and_one_legend(tmp_path):
    x, regression = make_regression()
    wide = RegressionPrediction(
        regression.mean, variance_between=1e4 + np.zeros((20, 1))
    )
    predictions = {f"method {i}": regression for i in range(4)}
    figure = plots.regression_comparison(
        x,
        {**predictions, "wide": wide},
        x_train=x,
        y_train=np.sin(x),
        truth=(np.sin(x), np.full(20, 0.5)),
        columns=3,
        title="Bands",
    )
    figure.savefig(tmp_path / "page.png")
    panels = [ax for ax in figure.axes if ax.axison]
    titles = [ax.get_title(loc="left") for ax in panels]
    assert titles == [*predictions, "wide"]
    # Data and truth, with a margin, not the wide band.
    low, high = np.sin(-1) - 1.0, np.sin(1) + 1.0
    margin = 0.35 * (high - low)
    for ax in panels:
        np.testing.assert_allclose(ax.get_ylim(), [low - margin, high + margin])
        assert ax.get_legend() is None
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "±2 sd of an observation",
        "±2 sd of the mean (epistemic)",
        "mean",
        "training data",
        "truth",
        "truth ±2 sd of an observation",
    ]
    # The panel above the empty place is the last of its column.
    labelled = [bool(ax.get_xlabel()) for ax in panels]
    assert labelled == [False, False, True, True, True]
