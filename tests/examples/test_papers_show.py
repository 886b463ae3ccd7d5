"""What the figures of the papers' recipes look like."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))

from recipe import Cell  # noqa: E402
from show import panels  # noqa: E402


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
