"""One metric of every method, as dots."""

import measures
import numpy as np
import published

from show import panels
from show.table import of_metrics


def show(outcome, arguments):
    """Draws a metric, its spread and the paper's value; returns a table.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Dots`.
    """
    metric = arguments.metric
    places = panels.of_places(outcome.results)
    figure, axes = panels.figure(list(places))
    twins = []
    for (ax,), of_place in zip(axes, places.values(), strict=True):
        names = [cell.method for cell in of_place]
        values = [
            [measures.of(metric, r) for r in of_seeds]
            for of_seeds in of_place.values()
        ]
        ax.errorbar(
            names,
            [np.mean(v) for v in values],
            [np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in values],
            fmt="o",
            capsize=3,
            color=panels.COLORS[0],
            label="here",
        )
        rows = {
            cell.method: published.numbers_of(arguments.published_in, cell)
            for cell in of_place
        }
        printed = {
            name: row[metric] for name, row in rows.items() if metric in row
        }
        if printed:
            twin = ax.twinx()
            twin.tick_params(axis="y", colors=panels.COLORS[1])
            twins.append([twin])
            twin.plot(
                list(printed),
                list(printed.values()),
                linestyle="none",
                marker="D",
                color=panels.COLORS[1],
                label="in the paper (right axis)",
            )
        ax.set_ylabel(metric)
        ax.tick_params(axis="y", colors=panels.COLORS[0])
        for word in ax.get_xticklabels():
            word.set(rotation=60, ha="right", rotation_mode="anchor")
    panels.one_legend(figure, axes + twins)
    panels.heading(figure, outcome.recipe)
    file = outcome.save(figure, "dots")
    return f"{of_metrics(outcome, [metric])}\n\nDots: {file}"
