"""Metrics against a setting."""

import measures
import numpy as np
from recipe import in_words

from keras_bdl.extend import method_styles
from show import panels
from show.table import of_metrics

# Largest number of values that have room below a panel.
MOST_TICKS = 8


def show(outcome, arguments):
    """Draws metrics against each varied setting; returns a table.

    A cell without any varied setting becomes a horizontal line.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Sweep`.
    """
    results = outcome.results
    metrics, along = arguments.metrics, arguments.along
    figure, axes = panels.figure(
        [_title(results, name) for name in along], rows=len(metrics)
    )
    lines_of = {name: _lines(results, name, along) for name in along}
    # A method has the same style in all panels, and no other method has it.
    labels = [label for lines in lines_of.values() for label in lines]
    styles = method_styles(dict.fromkeys(labels))
    for panel, (name, lines) in zip(axes, lines_of.items(), strict=True):
        for ax, metric in zip(panel, metrics, strict=True):
            for label, line in lines.items():
                _draw(ax, line, metric, label, styles[label])
            ax.set_ylabel(metric)
        panel[-1].set_xlabel(name)
        positive = {x for line in lines.values() for x, _ in line if x}
        if positive and max(positive) > 20 * min(positive):
            for ax in panel:
                ax.set_xscale("log")
                if len(positive) <= MOST_TICKS:
                    ax.set_xticks(list(positive), map(in_words, positive))
                    ax.set_xticks([], minor=True)
        if arguments.above:
            _add_upper(panel[0], *arguments.above)
    panels.one_legend(figure, axes)
    panels.heading(figure, outcome.recipe)
    file = outcome.save(figure, "sweep")
    return f"{of_metrics(outcome, metrics)}\n\nSweep: {file}"


def _add_upper(ax, label, factor):
    """Adds another scale on the upper side."""
    functions = (lambda x: factor * x, lambda x: x / factor)
    ax.secondary_xaxis("top", functions=functions).set_xlabel(label)


def _title(results, name):
    """Returns the title of a panel; names shared data and network."""
    swept = [cell for cell in results if name in dict(cell.options)]
    places = {cell.where for cell in swept}
    return "; ".join([f"along {name}", *(places if len(places) == 1 else ())])


def _lines(results, name, along):
    """Returns the points of each line: swept value and results, by label."""
    lines = {}
    for cell, of_seeds in results.items():
        options = dict(cell.options)
        if name not in options and any(key in options for key in along):
            continue  # of another panel
        if _swept(options, along) not in (name, None):
            continue
        x = options.get(name)
        label = cell.label_without({(name, x)})
        if x is None:
            label += f" (no {name})"
        lines.setdefault(label, []).append((x, of_seeds))
    return lines


def _swept(options, along):
    """Returns the last setting of `along` that a cell has, or `None`."""
    present = [key for key in along if key in options]
    return present[-1] if present else None


def _draw(ax, line, metric, label, style):
    values = [[measures.of(metric, r) for r in seeds] for _, seeds in line]
    means = np.array([np.mean(v) for v in values])
    errors = [
        np.std(v, ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in values
    ]
    if line[0][0] is None:
        ax.axhline(means[0], label=label, color=style["color"], ls="--")
        return
    x = [point for point, _ in line]
    ax.errorbar(x, means, errors, label=label, capsize=2, ms=4, **style)
