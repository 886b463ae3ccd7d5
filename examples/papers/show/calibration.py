"""How far confidence is from accuracy."""

import keras_bdl as bdl
from keras_bdl.plots import canvas
from show import panels
from show.table import of_metrics


def show(recipe, results, folder):
    """Draws reliability diagrams of the first seed; returns a table.

    Args:
        recipe: The `Recipe`; `num_bins` is 20 unless it says otherwise.
        results: One `Result` a seed, by cell.
        folder: Where the figure is written.
    """
    labels = panels.labels(results)
    styles = canvas.method_styles(dict.fromkeys(labels.values()))
    places = panels.of_places(results)
    figure, axes = panels.figure(list(places))
    for (ax,), of_place in zip(axes, places.values(), strict=True):
        bdl.plots.reliability_diagram(
            {labels[cell]: seeds[0].test for cell, seeds in of_place.items()},
            num_bins=recipe.arguments.get("num_bins", 20),
            ax=ax,
        )
        for line in ax.get_lines():  # one legend for all panels
            line.set(**styles.get(line.get_label(), {}))
    panels.one_legend(figure, axes)
    figure.suptitle(recipe.title, wrap=True)
    path = folder / "calibration.png"
    figure.savefig(path, dpi=150)
    table = of_metrics(recipe, results, ("ece", "overconfidence", "nll"))
    return f"{table}\n\nReliability diagrams: {path.name}"
