"""The smallest and the largest eigenvalue of the Hessian."""

import numpy as np
import published
from files import digested
from files import kept

import keras_bdl as bdl
from show.table import markdown
from show.table import mean_and_error


def show(outcome, arguments):
    """Returns a table of the extreme eigenvalues.

    The first two columns are for the mean loss over all examples. The last two
    columns add up the Hessians of the mean losses of all batches, as the code
    of the paper does.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.NoArguments`.
    """
    heads = "smallest", "largest", "smallest, summed", "largest, summed"
    lines = [("data, network", "method", *heads)]
    for cell, of_seeds in outcome.results.items():
        found = [_eigenvalues(result.trained[0]) for result in of_seeds]
        printed = published.numbers_of(outcome.recipe.name, cell)
        ends = np.array(found)
        columns = [mean_and_error(values) for values in ends.T]
        batches = of_seeds[0].trained[0].data.steps
        for name, values in zip(heads[:2], batches * ends.T, strict=True):
            text = mean_and_error(values)
            if f"{name}_eigenvalue" in printed:
                text += f" (paper {printed[f'{name}_eigenvalue']:.4g})"
            columns.append(text)
        lines.append((cell.where, cell.label, *columns))
    return markdown(lines)


def _eigenvalues(trained):
    """Returns the smallest and the largest eigenvalue; computes them once."""
    tolerance = 0.1 if trained.session.scale == "smoke" else 1e-3

    def find():
        found = bdl.diagnostics.hessian_eigenvalues(
            trained.model,
            trained.data.statistics,
            loss=trained.loss(),
            tolerance=tolerance,
            seed=trained.seed,
            batch_size=trained.statistics_batch_size,
        )
        return found.minimum, found.maximum

    return kept(trained.folder / f"{digested('hessian', tolerance)}.json", find)
