import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.diagnostics._loss_sections import LossCrossSectionReport
from keras_bdl.diagnostics._loss_sections import LossPlaneReport

DISTANCES = [-4.0, 4.0, 0.0, -2.0, 2.0]
RISES = np.array([[1.0], [0.1]]) * np.square(DISTANCES)


def section(stddevs=(0.5, 2.0)):
    loss = 0.3 + RISES
    return LossCrossSectionReport(
        examples=10,
        distances=DISTANCES,
        loss=loss.tolist(),
        penalty=np.full_like(loss, 0.2).tolist(),
        error=loss.tolist(),
        stddevs=None if stddevs is None else list(stddevs),
    )


def plane(covariance=((2.0, 0.5), (0.5, 1.0))):
    first, second = np.linspace(-4, 4, 9), np.linspace(-3, 3, 7)
    loss = 1 + np.add.outer(first**2, 0.1 * second**2)
    loss[0, 0] = np.nan
    return LossPlaneReport(
        examples=10,
        distances=[first.tolist(), second.tolist()],
        loss=loss.tolist(),
        penalty=np.zeros_like(loss).tolist(),
        error=loss.tolist(),
        covariance=covariance,
    )


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_cross_section_shows_loss_and_penalty_and_the_posterior_thick():
    ax = plots.loss_cross_section(section(), labels=["a", "b"], gaussian=True)
    _, thin, thick, *_ = ax.lines
    np.testing.assert_allclose(thin.get_xdata(), [-4, -2, 0, 2, 4])
    np.testing.assert_allclose(thin.get_ydata(), 0.5 + thin.get_xdata() ** 2)
    np.testing.assert_allclose(thick.get_xdata(), [-1.5, 0, 1.5])
    np.testing.assert_allclose(thick.get_ydata(), [3.5, 0.5, 3.5])
    x, y = ax.lines[-1].get_data()
    np.testing.assert_allclose(y, 0.5 + x**2 / (2 * 10 * 2.0**2))
    wide, _ = ax.lines[4].get_data()
    np.testing.assert_allclose(wide, [-4, -2, 0, 2, 4])
    assert ax.get_ylim()[1] < 20
    assert legend(ax) == [
        "a",
        "b",
        "within 3 standard deviations",
        "if Gaussian",
    ]


def test_cross_section_without_a_posterior_has_thin_lines_only():
    ax = plots.loss_cross_section(section(None))
    assert legend(ax) == ["direction 1", "direction 2"]
    assert len(ax.lines) == 3


def test_energy_of_the_posterior_is_that_of_its_gaussian():
    expected = np.square(DISTANCES)[None] / (20 * np.square([[0.5], [2.0]]))
    np.testing.assert_allclose(section().posterior_energy, expected)
    assert section(None).posterior_energy is None
    t = np.array([-4.0 + 3, -3.0 + 1])
    energy = t @ np.linalg.solve([[2.0, 0.5], [0.5, 1.0]], t) / 20
    assert plane().posterior_energy[3, 1] == pytest.approx(energy)
    assert plane(None).posterior_energy is None


def test_plane_draws_contours_ellipse_and_trajectory(tmp_path):
    path = np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 0.0]])
    ax = plots.loss_plane(
        plane(), trajectory=path, labels=("v1", "v2"), stddevs=2, levels=5
    )
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    np.testing.assert_allclose(lines["trajectory"], path)
    ellipse = lines["posterior, 2 standard deviations"]
    precision = np.linalg.inv([[2.0, 0.5], [0.5, 1.0]])
    squares = np.einsum("ai,ij,aj->a", ellipse, precision, ellipse)
    np.testing.assert_allclose(squares, 4)
    (contours,) = ax.collections
    # All values are shown, from 1 on; the corner that is NaN is not.
    highest = 1 + 16 + 0.1 * 9
    assert contours.levels[[0, -1]] == pytest.approx([1, highest])
    heights = contours.levels[1:] - 1
    np.testing.assert_allclose(heights[1:] / heights[:-1], 1000 ** (1 / 4))
    assert ax.get_xlim() == (-4, 4) and ax.get_ylim() == (-3, 3)
    assert ax.get_xlabel() == "distance along v1"
    ax.figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_plane_accepts_axes_and_a_highest_value():
    figure, ax = plt.subplots()
    assert plots.loss_plane(plane(None), highest=3.0, ax=ax) is ax
    assert ax.collections[0].levels[-1] == pytest.approx(3.0)
    assert legend(ax) == ["center"]
    assert plt.get_fignums() == [figure.number]


def test_wrong_input_is_refused_and_leaves_no_figure():
    one, rays = plane(), section()
    for message, call in (
        ("`section` must be a result", lambda: plots.loss_cross_section(one)),
        (
            "one name for each of the 2 dir",
            lambda: plots.loss_cross_section(rays, labels=["a"]),
        ),
        (
            "`gaussian=True` needs",
            lambda: plots.loss_cross_section(section(None), gaussian=True),
        ),
        ("`plane` must be a result", lambda: plots.loss_plane(rays)),
        (
            "two coordinates in a row",
            lambda: plots.loss_plane(one, trajectory=[[1.0]]),
        ),
        ("names of the two dir", lambda: plots.loss_plane(one, labels=["a"])),
        ("`levels` must be", lambda: plots.loss_plane(one, levels=1)),
        ("must rise above", lambda: plots.loss_plane(one, highest=0.5)),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not plt.get_fignums()
