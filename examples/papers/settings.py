"""The settings of every training, at every scale."""

import functools
import tomllib
from pathlib import Path

import published

# What papers call data that has a name of its own here.
_PRINTED_DATA = {"cifar5": "cifar10"}


@functools.cache
def chosen():
    """Returns the settings that no paper has: see `chosen.toml`."""
    return tomllib.loads(Path(__file__).with_name("chosen.toml").read_text())


def of(cell, training, scale):
    """Returns the settings of a training as a dict.

    At the scale of the paper they are what it prints; what it leaves open is
    taken from its authors' code, and else from `chosen.toml`. Otherwise, all
    are from there.

    Args:
        cell: The `Cell`.
        training: Name of the training.
        scale: The scale.
    """
    options = dict(cell.options)
    if scale == "paper":
        found = _open(cell, training) | _printed(
            cell, training, options.get("augmented")
        )
    else:
        tables = chosen()["small"]
        found = tables["all"] | tables.get(training, {})
        found |= tables.get(cell.paper, {}).get(training, {})
        if scale == "smoke":
            found |= chosen()["smoke"]
    found |= options
    if "prior_variance" in found:
        found["prior_precision"] = 1 / found.pop("prior_variance")
    return found


def _printed(cell, training, augmented):
    """What is printed of a training, or of the method that is made of it."""
    names = [training, cell.method]
    if dict(cell.options).get("covariance") in ("scalar", "diagonal"):
        names.insert(0, f"{training}, learned variances")
    for name in names:
        try:
            return published.settings(
                cell.paper,
                _PRINTED_DATA.get(cell.data, cell.data),
                cell.network,
                name,
                augmented,
                code=True,
            )
        except ValueError as error:
            reason = error
    raise SystemExit(str(reason))


def _open(cell, training):
    """What is closer to the cell comes later."""
    tables = chosen()["open"]
    found, of_paper = dict(tables["all"]), tables.get(cell.paper, {})
    for name in ("all", training, cell.data, cell.network):
        found |= of_paper.get(name, {})
    return found


def published_row(name, cell):
    """Returns the numbers that a paper prints of a cell, or an empty dict.

    Args:
        name: Name of the recipe.
        cell: The `Cell`.
    """
    table = published.published()[name]
    known = {"network": cell.network, "method": cell.method}
    known |= dict(cell.options)
    known["data"] = cell.test or _PRINTED_DATA.get(cell.data, cell.data)
    for row in table.get("rows", ()):
        if all(row.get(k) == known.get(k) for k in table["labels"]):
            return row
    return {}
