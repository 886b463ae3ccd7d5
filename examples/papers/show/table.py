"""A table of metrics, beside the numbers of the paper."""

import measures
import numpy as np
import published


def show(outcome, arguments):
    """Returns the table, in Markdown.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Table`.
    """
    return of_metrics(outcome, arguments.metrics)


def of_metrics(outcome, metrics, results=None):
    """Returns a table with a row for each cell.

    Args:
        outcome: The `Outcome`.
        metrics: Names of the columns, see `measures.of`.
        results: The results to show. Defaults to `None`, those of `outcome`.
    """
    lines = [("data, network", "method", *metrics)]
    if results is None:
        results = outcome.results
    for cell, of_seeds in results.items():
        printed = published.numbers_of(outcome.recipe.name, cell)
        columns = []
        for metric in metrics:
            text = mean_and_error([measures.of(metric, r) for r in of_seeds])
            if metric in printed:
                text += f" (paper {printed[metric]:.4g})"
            columns.append(text)
        lines.append((cell.where, cell.label, *columns))
    return markdown(lines)


def mean_and_error(values):
    """Returns the mean with its standard error, as text.

    Args:
        values: One value for each seed.
    """
    text = f"{np.mean(values):.4g}"
    if len(values) > 1:
        text += f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.2g}"
    return text


def markdown(lines):
    """Returns a table in Markdown.

    Args:
        lines: Rows of strings; the first row has the heads of the columns.
    """
    head, *rows = lines
    rows = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
