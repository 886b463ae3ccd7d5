import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.evaluation import calibration_bins
from keras_bdl.evaluation._ranking import referral_accuracy
from keras_bdl.evaluation._ranking import referral_auroc
from keras_bdl.prediction import ClassificationPrediction
from tests.plots.helpers import make_prediction


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
