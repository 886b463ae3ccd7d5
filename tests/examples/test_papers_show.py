"""What the figures of the papers' recipes look like."""

import sys
from pathlib import Path

import keras
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "papers"))
sys.path.append(str(EXAMPLES))

import continual_learning  # noqa: E402
import regression  # noqa: E402
from recipe import Cell  # noqa: E402
from show import panels  # noqa: E402
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
