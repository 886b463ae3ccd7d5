"""The gaps between training metrics and test metrics."""

import measures
import numpy as np
import published

from show.table import markdown
from show.table import mean_and_error

# Metrics of test and of training, and 1 if a higher value is better.
NUMBERS = (("accuracy", "train_accuracy", 1), ("nll", "train_nll", -1))


def show(outcome, arguments):
    """Returns a table of test metrics and their gaps to training.

    The metrics of training are those of its last epoch, with active dropout and
    with posterior samples.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.NoArguments`.
    """
    heads = ("accuracy", "accuracy_gap", "nll", "nll_gap")
    lines = [("data, network", "method", *heads)]
    for cell, of_seeds in outcome.results.items():
        printed = published.numbers_of(outcome.recipe.name, cell)
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
