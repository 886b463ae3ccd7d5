"""The share of settings with which a method learns."""

import numpy as np
import published

from show.table import markdown


def show(outcome, arguments):
    """Returns a table of the shares of guessing runs and of good runs.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Robustness`.
    """
    areas, cells = {}, {}
    for cell, of_seeds in outcome.results.items():
        cells.setdefault(cell.method, cell)
        areas.setdefault(cell.method, []).extend(
            result.report.referral["auroc"][0] for result in of_seeds
        )
    lines = [("method", "runs", "median area", "guessing", "good")]
    for method, values in areas.items():
        printed = published.numbers_of(outcome.recipe.name, cells[method])
        columns = []
        for name, inside in (
            ("untrained_share", np.less_equal(values, arguments.guessing)),
            ("good_share", np.greater_equal(values, arguments.good)),
        ):
            share = np.mean(inside)
            error = (share * (1 - share) / len(values)) ** 0.5
            text = f"{share:.2f} ± {error:.2f}"
            if name in printed:
                text += f" (paper {printed[name]:.2f})"
            columns.append(text)
        lines.append(
            (method, str(len(values)), f"{np.median(values):.3f}", *columns)
        )
    return markdown(lines)
