"""How much better networks are on what they were trained on."""

import measures
import numpy as np
import settings

from show.table import markdown
from show.table import mean_and_error

# Of `measures`: on test data, in training, and which way is better.
NUMBERS = (("accuracy", "train_accuracy", 1), ("nll", "train_nll", -1))


def show(recipe, results, folder):
    """Returns a table of test numbers and how much better training was.

    The numbers of training are those of its last epoch, while it went on,
    with dropout or draws.

    Args:
        recipe: The `Recipe`.
        results: One `Result` a seed, by cell.
        folder: Where files are written, none of them here.
    """
    heads = ("accuracy", "accuracy_gap", "nll", "nll_gap")
    lines = [("data, network", "method", *heads)]
    for cell, of_seeds in results.items():
        printed = settings.published_row(recipe.name, cell)
        columns = []
        for test, train, sign in NUMBERS:
            tested, trained = (
                np.array([measures.of(name, result) for result in of_seeds])
                for name in (test, train)
            )
            gap = mean_and_error(sign * (trained - tested))
            if f"{test}_gap" in printed:
                gap += f" (paper {printed[f'{test}_gap']:.4g})"
            columns += [mean_and_error(tested), gap]
        lines.append((cell.where, cell.label, *columns))
    return markdown(lines)
