"""A table of numbers, beside those that were printed."""

import measures
import numpy as np
import settings


def show(recipe, results, folder):
    """Returns the table, in Markdown.

    Args:
        recipe: The `Recipe`; its `metrics` are the columns.
        results: One `Result` a seed, by cell.
        folder: Where files are written, none of them here.
    """
    return of_metrics(recipe, results, recipe.arguments["metrics"])


def of_metrics(recipe, results, metrics):
    """Returns a table with a row for each cell.

    Args:
        recipe: The `Recipe`.
        results: One `Result` a seed, by cell.
        metrics: Names of the columns, see `measures.of`.
    """
    lines = [("data, network", "method", *metrics)]
    for cell, of_seeds in results.items():
        printed = settings.published_row(recipe.name, cell)
        columns = []
        for metric in metrics:
            text = mean_and_error([measures.of(metric, r) for r in of_seeds])
            if metric in printed:
                text += f" (paper {printed[metric]:.4g})"
            columns.append(text)
        lines.append((cell.where, cell.label, *columns))
    return markdown(lines)


def mean_and_error(values):
    """Returns the mean with its standard error, in words.

    Args:
        values: One of each seed.
    """
    text = f"{np.mean(values):.4g}"
    if len(values) > 1:
        text += f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.2g}"
    return text


def markdown(lines):
    """Returns a table.

    Args:
        lines: Of strings; the first has the heads of the columns.
    """
    head, *rows = lines
    rows = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
