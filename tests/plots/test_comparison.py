import matplotlib.colors
import matplotlib.figure

from keras_bdl import evaluate
from keras_bdl import plots
from keras_bdl.plots._canvas import COLORS
from tests.plots.helpers import make_prediction


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
