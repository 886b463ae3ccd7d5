"""How much better networks are on what they were trained on."""

import numpy as np
import settings

from show.table import markdown
from show.table import mean_and_error

# Name, name in the logs, and which way is better.
NUMBERS = (("accuracy", "accuracy", 1), ("nll", "log_loss", -1))


def show(recipe, results, folder):
    """Returns a table of training and test numbers and the gap between them.

    The numbers of training are those of its last epoch, while it went on,
    with dropout or draws; those of testing are of its last test.

    Args:
        recipe: The `Recipe`.
        results: One `Result` a seed, by cell.
        folder: Where files are written, none of them here.
    """
    lines = [
        (
            "data, network",
            "method",
            "accuracy",
            "accuracy_gap",
            "nll",
            "nll_gap",
        )
    ]
    for cell, of_seeds in results.items():
        printed = settings.published_row(recipe.name, cell)
        columns = []
        for key, name, sign in (
            ("accuracy", "accuracy", 1),
            ("nll", "log_loss", -1),
        ):
            tested = np.array([r.history[f"val_{name}"][-1] for r in of_seeds])
            trained = np.array([r.history[name][-1] for r in of_seeds])
            gap = mean_and_error(sign * (trained - tested))
            if f"{key}_gap" in printed:
                gap += f" (paper {printed[f'{key}_gap']:.4g})"
            columns += [mean_and_error(tested), gap]
        lines.append((cell.where, cell.label, *columns))
    return markdown(lines)
