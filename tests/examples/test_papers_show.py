"""What the figures of the papers' recipes look like."""

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
import regression  # noqa: E402
from recipe import Cell  # noqa: E402
from recipe import Recipe  # noqa: E402
from show import calibration  # noqa: E402
from show import entropies  # noqa: E402
from show import gradient_noise  # noqa: E402
from show import hessian  # noqa: E402
from show import panels  # noqa: E402
from show import sweep  # noqa: E402
from show.regression import PaperNetworks  # noqa: E402


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_legend_is_as_wide_as_its_figure_at_most(count):
    figure, axes = panels.figure(["panel"] * count)
    for number in range(4):
        name = f"MFVI, truncated, train_samples = {number} (no truncation)"
        axes[0][0].plot([0, 1], label=name)
    panels.one_legend(figure, axes)
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.width


def test_labels_leave_out_what_all_cells_have_and_what_is_asked():
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


def test_uci_has_the_prior_and_the_learning_rate_of_the_radial_paper():
    rng = np.random.default_rng(0)
    train = rng.normal(size=(70, 4)), rng.normal(size=70)
    split = regression.Split(0, train)
    nets = PaperNetworks(split, "constant", regression.TABLES)
    nets.steps, nets.known["epochs"] = 2, 2
    for kind in ("mean_field", "radial"):
        model = nets.distribution(split, kind)
        layers = [x for x in model.layers if hasattr(x, "kernel_rho")]
        assert [x.units for x in layers] == [50, 1]
        for layer in layers:
            assert layer.prior.stddev == 1.0
        assert float(model.optimizer.learning_rate) == pytest.approx(1e-3)


def test_continual_tasks_of_the_paper_have_one_learning_rate():
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


def test_an_ensemble_takes_the_time_of_all_its_members():
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
    arguments = {"curve": curve, "num_bins": num_bins}
    name = "vogn/figure1"
    recipe = Recipe(name, "Title", ("calibration",), (), (), arguments)
    cell = Cell("vogn", "imagenet2012", "ResNet-18", "VOGN")
    plt.close("all")
    calibration.show(recipe, {cell: [as_result(cell, predicted())]}, tmp_path)
    diagonal, line = plt.gcf().axes[0].lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    np.testing.assert_allclose(line.get_xydata(), points, rtol=1e-6)
    assert (tmp_path / "calibration.png").exists()


def test_entropies_are_drawn_in_the_bins_of_their_divergence():
    divergence = bdl.evaluation.ood.entropy_divergence
    bins = inspect.signature(divergence).parameters["num_bins"].default
    assert bins == entropies.BINS


def test_variances_have_the_learning_rate_that_they_stand_for_above(tmp_path):
    recipe = Recipe(
        "taylor/figure1",
        "Title",
        ("sweep",),
        (),
        (),
        {"metrics": ["nll"], "along": ["variance"], "above": ["rate", 100.0]},
    )
    results = {}
    for variance in (1e-5, 1e-3):
        options = (("variance", variance),)
        cell = Cell("taylor", "cifar10", "PreActResNet-18", "MAP", options)
        results[cell] = [as_result(cell, predicted())]
    plt.close("all")
    sweep.show(recipe, results, tmp_path)
    plt.gcf().canvas.draw()
    (ax,) = plt.gcf().axes
    (upper,) = ax.child_axes
    np.testing.assert_allclose(upper.get_xlim(), 100 * np.array(ax.get_xlim()))


def test_the_papers_learning_rate_is_that_of_its_formula():
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


def test_printed_eigenvalues_stand_beside_sums_over_batches(monkeypatch):
    found = types.SimpleNamespace(minimum=-0.5, maximum=9.0)
    monkeypatch.setattr(hessian, "_eigenvalues", lambda trained: found)
    cell = Cell("swag", "cifar100", "PreResNet-164", "SGD")
    data = types.SimpleNamespace(steps=391)
    recipe = Recipe("swag/hessian", "Title", ("hessian",), (), (), {})
    table = hessian.show(recipe, {cell: [as_result(cell, data=data)]}, None)
    row = table.splitlines()[-1].split(" | ")[2:]
    assert row == ["-0.5", "9", "-195.5 (paper -272)", "3519 (paper 3580) |"]
