import sys

import matplotlib.colors
import matplotlib.figure
import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.conformal import LAC
from keras_bdl.conformal import NormalizedResiduals
from keras_bdl.conformal import RiskControl
from keras_bdl.evaluation import calibration_bins
from keras_bdl.evaluation import evaluate
from keras_bdl.evaluation._ranking import referral_accuracy
from keras_bdl.evaluation._ranking import referral_auroc
from keras_bdl.plots._canvas import COLORS
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction


@pytest.fixture(autouse=True)
def no_window_and_no_figure_left(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: pytest.fail("opened a window"))
    yield
    plt.close("all")


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


def test_reliability_shows_the_gaps_of_bins_of_equal_size():
    p = make_prediction()
    ax = plots.reliability_diagram(p, num_bins=6)
    bins = calibration_bins(
        p.confidence, p.predicted_classes == p.y, num_bins=6, binning="mass"
    )
    drawn = ax.lines[-1].get_xydata()
    np.testing.assert_allclose(drawn, np.stack([bins.confidence, bins.gap], 1))


def test_reliability_spreads_the_confidences_near_one():
    ax = plots.reliability_diagram(make_prediction())
    ninety, more, most = ax.transData.transform(
        [(0.9, 0.0), (0.99, 0.0), (0.999, 0.0)]
    )[:, 0]
    np.testing.assert_allclose(more - ninety, most - more, rtol=1e-6)


def test_bins_beyond_the_axis_are_one_point_weighted_by_count():
    probs = [0.6] * 2 + [0.99992] * 3 + [0.99996] * 1 + [1.0] * 4
    wrong = [0, 1, 0, 1, 0, 0, 1, 0, 0, 0]
    p = ClassificationPrediction.from_probabilities(
        [[q, 1 - q] for q in probs], y=wrong
    )
    ax = plots.reliability_diagram(p, num_bins=10)
    mean = (3 * 0.99992 + 0.99996 + 4 * 1.0) / 8
    np.testing.assert_allclose(
        ax.lines[-1].get_xydata(),
        [[0.6, 0.6 - 1 / 2], [0.9999, mean - 6 / 8]],
        rtol=1e-5,
    )
    assert "≥ 0.9999" in [t.get_text() for t in ax.get_xticklabels()]


@pytest.mark.parametrize("layout", ["constrained", "tight", None])
def test_legend_of_many_methods_is_below_the_axes_and_on_the_page(layout):
    names = "deterministic temperature_scaling MC_dropout deep_ensemble SWA "
    names = (names + "SWAG-Diagonal SWAG multi-SWAG").split()
    predictions = {
        name: make_prediction(60, seed=i, num_samples=1 + i)
        for i, name in enumerate(names)
    }
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout=layout)
    for ax in axes:
        plots.referral_curve(predictions, ax=ax)
    figure.canvas.draw()
    for ax in axes:
        legend = ax.get_legend().get_window_extent()
        label = ax.xaxis.label.get_window_extent()
        assert figure.bbox.y0 <= legend.y0 < legend.y1 <= label.y0
        assert figure.bbox.x0 <= legend.x0 and legend.x1 <= figure.bbox.x1
        assert ax.bbox.height > 0.4 * figure.bbox.height
        assert ax.get_in_layout()


@pytest.mark.parametrize(
    "probs",
    [[[1.0, 0.0]], [[1.0, 0.0]] * 50, [[0.5, 0.5]] * 5, [[0.7, 0.3]] * 5],
    ids=["one input", "certain", "uniform", "one bin"],
)
def test_extreme_predictions_are_drawn(probs, tmp_path):
    p = ClassificationPrediction.from_probabilities(probs, y=[0] * len(probs))
    for ax in (
        plots.reliability_diagram(p),
        plots.entropy_histograms(p, p),
        plots.referral_curve(p),
    ):
        ax.figure.savefig(tmp_path / "extreme.png")
    low, high = plots.reliability_diagram(p).get_xlim()
    assert low < p.confidence.clip(0, 0.9999)[0] < high < 1


def test_entropies_are_shares_between_zero_and_the_highest():
    p, q = make_prediction(n=50), make_prediction(n=200, seed=1)
    ax = plots.entropy_histograms(p, q, num_bins=10)
    np.testing.assert_allclose(ax.get_xlim(), [0, np.log(3)])
    for prediction, patch in zip((p, q), ax.patches, strict=True):
        edges = np.linspace(0, np.log(3), 11)
        counts, _ = np.histogram(prediction.entropy, edges)
        highest = patch.get_path().vertices[:, 1].max()
        np.testing.assert_allclose(
            highest, 100 * counts.max() / len(prediction)
        )


def test_referral_curve_shows_the_computed_scores():
    p = make_prediction(classes=2, num_samples=4)
    fractions = np.linspace(0, 0.4, 51)
    ax = plots.referral_curve(p, highest=0.4)
    expected = referral_accuracy(
        p.mutual_information, p.predicted_classes == p.y, fractions=fractions
    )
    drawn = np.stack([100 * fractions, expected], 1)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), drawn)
    assert ax.get_xlabel() == "referred by mutual information (%)"
    ax = plots.referral_curve(p, score="auroc", highest=0.4)
    expected = referral_auroc(
        p.mutual_information, p.mean[:, 1], p.y, fractions=fractions
    )
    np.testing.assert_allclose(ax.lines[0].get_ydata(), expected)


def test_referral_labels_name_the_measures():
    one, many = make_prediction(), make_prediction(num_samples=4)
    ax = plots.referral_curve({"plain": one, "SWAG": many})
    drawn = [line.get_label() for line in ax.lines]
    assert drawn == ["plain (by entropy)", "SWAG"]
    assert ax.get_xlabel() == "referred by mutual information unless noted (%)"
    ax = plots.referral_curve({"plain": one, "SWA": one})
    assert [line.get_label() for line in ax.lines] == ["plain", "SWA"]
    assert ax.get_xlabel() == "referred by entropy (%)"


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


def test_comparison_keeps_the_colour_of_a_method_on_the_whole_page():
    predictions = {
        "plain": make_prediction(),
        "SWAG": make_prediction(seed=1, num_samples=5),
    }
    ood = {name: make_prediction(40, seed=2) for name in predictions}
    figure = plots.comparison(predictions, ood=ood, title="Digits")
    assert isinstance(figure, matplotlib.figure.Figure)
    reliability, referral, *panels, table = figure.axes
    drawn = {
        line.get_label(): [line.get_color()]
        for line in reliability.lines
        if line.get_label() in predictions
    }
    for line in referral.lines:
        name = line.get_label().removesuffix(" (by entropy)")
        drawn[name].append(line.get_color())
    for ax in panels:
        name = ax.get_title(loc="left")
        drawn[name].append(matplotlib.colors.to_hex(ax.patches[0].get_ec()))
    for name, line in zip(predictions, table.lines[-2:], strict=True):
        drawn[name].append(line.get_color())
    colors = {k: [c.upper() for c in v] for k, v in drawn.items()}
    assert colors == {"plain": [COLORS[0]] * 4, "SWAG": [COLORS[1]] * 4}


def test_comparison_writes_the_numbers_of_the_reports_best_in_bold(tmp_path):
    predictions = {
        "plain": make_prediction(),
        "SWAG": make_prediction(seed=1, num_samples=5),
    }
    figure = plots.comparison(predictions, ood={"SWAG": make_prediction(9)})
    figure.savefig(tmp_path / "page.png")
    weight = {t.get_text(): t.get_weight() for t in figure.axes[-1].texts}
    nll = {n: evaluate(p).nll for n, p in predictions.items()}
    worse, best = sorted(nll, key=nll.get, reverse=True)
    assert weight[f"{nll[best]:.4f}"] == "bold"
    assert weight[f"{nll[worse]:.4f}"] == "normal"
    assert weight["n/a"] == "normal"


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


def test_segmentation_maps_show_labels_outside_the_classes_as_no_class():
    rng = np.random.default_rng(0)
    p = ClassificationPrediction.from_probabilities(
        rng.dirichlet(np.ones(3), (2, 4, 5)), num_samples=2
    )
    y = rng.integers(0, 3, (2, 4, 5))
    y[0, 0] = 255
    images = rng.random((2, 4, 5))
    figure = plots.segmentation_maps(images, p, y)
    axes = figure.axes
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["0", "1", "2", "no class"]
    labels = axes[1].images[0].get_array()
    np.testing.assert_array_equal(labels.mask, y[0] == 255)
    np.testing.assert_array_equal(labels.compressed(), y[0][1:].ravel())
    known = np.minimum(y, 2)
    shown = [
        plots.segmentation_maps(images, p, labels).axes[1].images[0]
        for labels in (known, np.eye(3)[known])
    ]
    np.testing.assert_array_equal(*(image.get_array() for image in shown))
    with pytest.raises(ValueError, match="one label for each pixel"):
        plots.segmentation_maps(images, p, y[:, :2])


def test_segmentation_maps_of_one_sample_show_the_entropy():
    p = ClassificationPrediction.from_probabilities(np.full((1, 4, 4, 2), 0.5))
    figure = plots.segmentation_maps(np.zeros((1, 4, 4, 3)), p)
    assert figure.axes[2].get_title() == "entropy"
    assert len(figure.legends[0].get_texts()) == 2
    drawn = figure.axes[2].images[0].get_array()
    np.testing.assert_allclose(drawn, np.log(2.0))


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
