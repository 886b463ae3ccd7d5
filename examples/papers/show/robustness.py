"""In how many settings a method learns."""

import numpy as np
import settings

from show.table import markdown


def show(recipe, results, folder):
    """Returns a table of the shares of settings that learn nothing, and much.

    Args:
        recipe: The `Recipe`; areas under the curve up to `guessing` are
            nothing, from `good` on they are much.
        results: One `Result` a seed, by cell.
        folder: Where files are written, none of them here.
    """
    guessing, good = recipe.arguments["guessing"], recipe.arguments["good"]
    areas, cells = {}, {}
    for cell, of_seeds in results.items():
        cells.setdefault(cell.method, cell)
        areas.setdefault(cell.method, []).extend(
            result.report.referral["auroc"][0] for result in of_seeds
        )
    lines = [("method", "runs", "median area", "guessing", "good")]
    for method, values in areas.items():
        printed = settings.published_row(recipe.name, cells[method])
        columns = []
        for name, inside in (
            ("untrained_share", np.less_equal(values, guessing)),
            ("good_share", np.greater_equal(values, good)),
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
