import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.diagnostics import _gradient_variance

NAMES = [("conv", "conv/kernel_mean", "means"), ("conv", "b", "rhos")]


def report(scale, samples=20):
    squares = scale * np.random.default_rng(0).uniform(0.5, 1.5, (samples, 2))
    found = _gradient_variance._Found(NAMES, [4, 4], squares, [1.0, 2.0])
    return _gradient_variance.GradientVarianceReport(
        num_samples=samples + 1, examples=8, seed=0, **found.groups()
    )


METHODS = {
    "mean-field": {1.0: report(5.0), 0.1: report(0.2), 0.5: report(1.0)},
    "Radial": {0.1: report(0.1), 1.0: report(0.0)},
}


@pytest.mark.parametrize("of, layer", [("means", None), ("rhos", "conv")])
def test_lines_show_the_numbers_of_the_reports_in_order(of, layer):
    ax = plots.gradient_variance(METHODS, of=of, layer=layer, label="sigma")
    first, second = ax.lines
    expected = [getattr(METHODS["mean-field"][x], of) for x in (0.1, 0.5, 1.0)]
    np.testing.assert_allclose(first.get_xdata(), [0.1, 0.5, 1.0])
    variance = [one["variance"] for one in expected]
    np.testing.assert_allclose(first.get_ydata(), variance)
    np.testing.assert_array_equal(np.isnan(second.get_ydata()), [False, True])
    corners = ax.collections[0].get_paths()[0].vertices
    for x, one in zip((0.1, 0.5, 1.0), expected, strict=True):
        highest = one["variance"] + one["variance_error"]
        assert corners[corners[:, 0] == x, 1].max() == pytest.approx(highest)
    assert ax.get_yscale() == "log" and ax.get_xlabel() == "sigma"
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == list(METHODS)


def test_axes_are_created_or_used_and_returned(tmp_path):
    figure, ax = plt.subplots()
    assert plots.gradient_variance(METHODS, ax=ax) is ax
    assert plt.get_fignums() == [figure.number]
    made = plots.gradient_variance({"one": {0: report(1.0, samples=1)}})
    made.figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_wrong_input_is_refused_and_leaves_no_figure():
    for message, arguments in (
        ("`of` must be one of", {"of": "sigma"}),
        ("at least one. Received: reports={}", {"reports": {}}),
        (r"`reports\['a'\]` must be a dict", {"reports": {"a": report(1.0)}}),
        (r"`layer` must be one of \['conv'\]", {"layer": "dense"}),
    ):
        with pytest.raises(ValueError, match=message):
            plots.gradient_variance(**{"reports": METHODS, **arguments})
    assert not plt.get_fignums()
