import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_bdl import extend
from keras_bdl import plots
from tests.diagnostics.series import ar1

CHAINS = ar1(0.5, 3, 40, 6).reshape(3, 40, 2, 3)
DRAW = [plots.trace, plots.autocorrelation]


def named_lines(ax):
    return {
        line.get_label(): line.get_xydata()
        for line in ax.lines
        if line.get_label().startswith("chain")
    }


def test_trace_shows_every_sample_of_the_chosen_quantity():
    ax = plots.trace(CHAINS, entry=(1, 2))
    drawn = named_lines(ax)
    assert list(drawn) == ["chain 1", "chain 2", "chain 3"]
    for line, chain in zip(drawn.values(), CHAINS, strict=True):
        np.testing.assert_array_equal(line[:, 0], np.arange(1, 41))
        np.testing.assert_array_equal(line[:, 1], chain[:, 1, 2])
    assert ax.get_ylabel() == "quantity (1, 2)"
    assert plots.trace(CHAINS[:1, :, 0, 0], label="bias").get_ylabel() == "bias"


def test_autocorrelation_shows_band_and_effective_sample_size():
    ax = plots.autocorrelation(CHAINS, entry=(0, 1), max_lag=10)
    one = CHAINS[:, :, 0, 1]
    rho = extend.autocorrelation(one, max_lag=10)
    for line, expected in zip(named_lines(ax).values(), rho, strict=True):
        np.testing.assert_array_equal(line[:, 0], np.arange(11))
        np.testing.assert_array_equal(line[:, 1], expected)
    (band,) = ax.patches
    corners = (
        band.get_extents().transformed(ax.transData.inverted()).get_points()
    )
    np.testing.assert_allclose(
        corners[:, 1], np.array([-1, 1]) * 1.96 / 40**0.5
    )
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    ess = extend.effective_sample_size(one)
    assert legend[3:] == [
        "95 % of white noise",
        f"ESS {ess:.0f} of 120 samples",
    ]


@pytest.mark.parametrize("draw", DRAW)
def test_axes_are_created_or_used_and_returned(draw, tmp_path):
    figure, ax = plt.subplots()
    assert draw(CHAINS, entry=(0, 0), ax=ax) is ax
    assert plt.get_fignums() == [figure.number]
    draw(CHAINS, entry=(0, 0)).figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


@pytest.mark.parametrize("draw", DRAW)
def test_wrong_entries_are_refused_and_leave_no_figure(draw):
    for entry in (None, 0, (0, 3), (0, 0, 0), "a", 0.5, (slice(0, 1), 0)):
        with pytest.raises(ValueError, match="`entry` must be the index of"):
            draw(CHAINS, entry=entry)
    with pytest.raises(ValueError, match="`chains` must be finite"):
        draw(CHAINS * np.nan, entry=(0, 0))
    with pytest.raises(ValueError, match="at least 2 chains"):
        plots.autocorrelation(CHAINS[:1], entry=(0, 0))
    assert not plt.get_fignums()
