"""The figures of the papers' recipes."""

import dataclasses
import importlib
import inspect
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest
from matplotlib import pyplot as plt

import keras_bdl as bdl

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "papers"))
sys.path.append(str(EXAMPLES))

import continual_learning  # noqa: E402
import measures  # noqa: E402
from arguments import ARGUMENTS  # noqa: E402
from arguments import Calibration  # noqa: E402
from arguments import NoArguments  # noqa: E402
from arguments import Sweep  # noqa: E402
from lookup import settings_of  # noqa: E402
from outcome import Outcome  # noqa: E402
from recipe import Cell  # noqa: E402
from recipe import Recipe  # noqa: E402
from regression_experiments.data import Split  # noqa: E402
from regression_experiments.networks import TABLES  # noqa: E402
from show import calibration  # noqa: E402
from show import entropies  # noqa: E402
from show import gradient_noise  # noqa: E402
from show import hessian  # noqa: E402
from show import panels  # noqa: E402
from show import sweep  # noqa: E402
from show.regression import PaperNetworks  # noqa: E402

from keras_bdl.evaluation._ood import ENTROPY_BINS  # noqa: E402


def recipe(scale="small", name="swag/figure6"):
    return Recipe(name, "A title", {}, (), (), scale)


def outcome(results, folder=None, name="swag/figure6"):
    return Outcome(recipe(name=name), None, results, folder)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved, in place of files."""
    figures = []
    monkeypatch.setattr(
        plt.Figure,
        "savefig",
        lambda figure, *_, **__: figures.append(figure),
    )
    yield figures
    plt.close("all")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_legend_is_not_wider_than_its_figure(count):
    figure, axes = panels.figure(["panel"] * count)
    for number in range(4):
        name = f"MFVI, truncated, train_samples = {number} (no truncation)"
        axes[0][0].plot([0, 1], label=name)
    panels.one_legend(figure, axes)
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.width


def test_labels_leave_out_shared_and_unwanted_options():
    cells = [
        Cell(
            "vogn",
            "cifar10",
            "LeNet-5",
            "VOGN",
            (("augmented", True), ("samples", k), ("train_samples", 1 + k)),
        )
        for k in (1, 2)
    ]
    labels = panels.labels(dict.fromkeys(cells), without=("samples",))
    assert list(labels.values()) == [
        "VOGN, train_samples = 2",
        "VOGN, train_samples = 3",
    ]


def test_uci_has_prior_and_learning_rate_of_the_radial_paper():
    rng = np.random.default_rng(0)
    train = rng.normal(size=(70, 4)), rng.normal(size=70)
    split = Split(0, train)
    cell = Cell("radial", "", "MLP 1 x 50", "MFVI")
    known = settings_of(cell, "MFVI", "paper")
    known = dataclasses.replace(known, epochs=2)
    nets = PaperNetworks(split, "constant", TABLES, known)
    nets.steps = 2
    for kind in ("mean_field", "radial"):
        model = nets.distribution(split, kind)
        layers = [x for x in model.layers if hasattr(x, "kernel_rho")]
        assert [x.units for x in layers] == [50, 1]
        for layer in layers:
            assert layer.prior.stddev == 1.0
        assert float(model.optimizer.learning_rate) == pytest.approx(1e-3)


def test_continual_tasks_of_the_paper_have_a_constant_learning_rate():
    own = continual_learning.SETTINGS["fashion_mnist"]
    assert own.rate(1000) == own.learning_rate == 1e-3
    digits = continual_learning.SETTINGS["digits"]
    rate = digits.rate(1000)
    assert isinstance(rate, keras.optimizers.schedules.CosineDecay)
    assert float(rate(0)) == pytest.approx(0.01) and float(rate(1000)) == 0


def as_result(cell, test=None, **trained):
    members = [
        types.SimpleNamespace(history={"seconds": [9.0, one, one]})
        for one in trained.pop("seconds", [1.0])
    ]
    vars(members[0]).update(trained)
    return measures.Result(cell, {"test": test}, members, ())


def test_seconds_of_an_ensemble_are_the_sum_over_its_members():
    cell = Cell("radial", "retinopathy", "VGG-16", "Deep Ensemble")
    result = as_result(cell, seconds=[1.0, 2.0, 4.0])
    assert measures.of("seconds_per_epoch", result) == 7.0


def predicted():
    """Confidences of 0.55, 0.65, 0.65 and 0.95; the second one is wrong."""
    first = np.array([0.55, 0.65, 0.35, 0.95])
    return bdl.prediction.ClassificationPrediction.from_probabilities(
        np.stack([first, 1 - first], 1), y=[0, 1, 1, 0]
    )


@pytest.mark.parametrize(
    ("curve", "num_bins", "points"),
    [
        ("width", 10, [[0.55, 1.0], [0.65, 0.5], [0.95, 1.0]]),
        # Of equal mass, those of equal confidence stay together.
        ("mass", 2, [[0.55, 1.0], [0.75, 2 / 3]]),
    ],
)
def test_calibration_curves_are_accuracies_by_confidence(
    curve, num_bins, points, tmp_path
):
    arguments = Calibration(curve=curve, num_bins=num_bins)
    cell = Cell("vogn", "imagenet2012", "ResNet-18", "VOGN")
    plt.close("all")
    results = {cell: [as_result(cell, predicted())]}
    calibration.show(outcome(results, tmp_path, "vogn/figure1"), arguments)
    diagonal, line = plt.gcf().axes[0].lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    np.testing.assert_allclose(line.get_xydata(), points, rtol=1e-6)
    assert (tmp_path / "calibration.png").exists()


def test_entropy_histograms_have_the_bins_of_the_divergence():
    assert entropies.BINS == ENTROPY_BINS


def test_upper_axis_has_the_learning_rate_of_each_variance(tmp_path):
    arguments = Sweep(("nll",), ("variance",), above=("rate", 100.0))
    results = {}
    for variance in (1e-5, 1e-3):
        options = (("variance", variance),)
        cell = Cell("taylor", "cifar10", "PreActResNet-18", "MAP", options)
        results[cell] = [as_result(cell, predicted())]
    plt.close("all")
    sweep.show(outcome(results, tmp_path), arguments)
    plt.gcf().canvas.draw()
    (ax,) = plt.gcf().axes
    (upper,) = ax.child_axes
    np.testing.assert_allclose(upper.get_xlim(), 100 * np.array(ax.get_xlim()))


def test_learning_rate_of_the_paper_follows_its_formula():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 3)).astype("f")
    y = rng.normal(size=(24, 1)).astype("f")
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.compile("sgd", "mse")
    noise = bdl.diagnostics.gradient_noise(
        model, (x, y), momentum=0.9, batch_size=4, verbose=0
    )
    error = model.predict(x, verbose=0) - y
    of_batches = (2 * error * x).reshape(6, 4, 3).mean(1)
    variance = of_batches.var(0, ddof=1).sum()
    expected = 2 * 0.9 * 4**2 / 24 * 3 / variance
    assert gradient_noise._as_printed(noise) == pytest.approx(expected)


def test_published_eigenvalues_are_beside_sums_over_batches(monkeypatch):
    monkeypatch.setattr(hessian, "_eigenvalues", lambda trained: (-0.5, 9.0))
    cell = Cell("swag", "cifar100", "PreResNet-164", "SGD")
    data = types.SimpleNamespace(steps=391)
    results = {cell: [as_result(cell, data=data)]}
    table = hessian.show(outcome(results, None, "swag/hessian"), NoArguments())
    row = table.splitlines()[-1].split(" | ")[2:]
    assert row == ["-0.5", "9", "-195.5 (paper -272)", "3519 (paper 3580) |"]


def test_headings_name_a_scale_with_substitutes():
    assert recipe("paper").heading(" (test)") == "A title (test)"
    small = recipe("small").heading(" (test)")
    assert small.startswith("A title (test)\n(in small: digits")
    assert "to see that it runs" in recipe("smoke").heading()


def test_methods_of_a_sweep_have_different_styles(monkeypatch, drawn, tmp_path):
    cells = [
        Cell("swag", "cifar10", "VGG-16", method, ((name, x),))
        for method, name, values in (
            ("SWA", "epochs", (30, 40)),
            ("SGD", "epochs", (30, 40)),
            ("SWAG", "samples", (1, 100)),
        )
        for x in values
    ]
    monkeypatch.setattr(sweep.measures, "of", lambda metric, result: 1.0)
    monkeypatch.setattr(sweep, "of_metrics", lambda *_: "")
    sweep.show(
        outcome({cell: [None] for cell in cells}, tmp_path),
        Sweep(("nll",), ("epochs", "samples")),
    )
    (figure,) = drawn
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [
        f"along {name}; cifar10, VGG-16" for name in ("epochs", "samples")
    ]
    lines = [bars.lines[0] for ax in figure.axes for bars in ax.containers]
    looks = [(line.get_color(), line.get_marker()) for line in lines]
    assert len(looks) == len(set(looks)) == 3
    assert [t.get_text() for t in figure.axes[1].get_xticklabels()] == [
        "1",
        "100",
    ]


def test_panels_of_calibration_share_one_scale(monkeypatch, drawn, tmp_path):
    def diagram(predictions, num_bins, ax):
        (gap,) = predictions.values()
        ax.plot([0, 1], [0, gap], label="SGD")
        ax.set_ylim(0, gap)

    monkeypatch.setattr(calibration.bdl.plots, "reliability_diagram", diagram)
    monkeypatch.setattr(calibration, "of_metrics", lambda *_: "")
    gaps = {"cifar10": 0.4, "cifar100": 0.1}
    results = {
        Cell("swag", data, "VGG-16", "SGD"): [types.SimpleNamespace(test=gap)]
        for data, gap in gaps.items()
    }
    calibration.show(outcome(results, tmp_path), Calibration())
    limits = [ax.get_ylim() for ax in drawn[0].axes]
    np.testing.assert_allclose(limits, [(0, 0.4)] * 2)


def test_every_module_of_show_has_the_same_signature():
    modules = {path.stem for path in (EXAMPLES / "papers/show").glob("*.py")}
    assert modules - set(ARGUMENTS) == {"__init__", "panels"}
    for name in ARGUMENTS:
        show = importlib.import_module(f"show.{name}").show
        assert list(inspect.signature(show).parameters) == [
            "outcome",
            "arguments",
        ]
