"""The settings of a training, looked up in the files."""

import functools
import tomllib
from pathlib import Path

import published
from settings import FACTS
from settings import Settings
from settings import check_options
from typed import checked
from typed import record


@functools.cache
def chosen():
    """Returns the tables of `chosen.toml`, checked."""
    path = Path(__file__).with_name("chosen.toml")
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    for scale, of_scale in tables.items():
        _check(of_scale, f"{path.name}, [{scale}]")
    return tables


def _check(tables, where):
    """Checks tables of settings, and all tables inside them."""
    for name, table in tables.items():
        if isinstance(table, dict):
            _check(table, f"{where[:-1]}.{name}]")
    settings = {k: v for k, v in tables.items() if not isinstance(v, dict)}
    checked(Settings, settings, where)


@functools.cache
def check_published():
    """Checks the settings of all rows in `published.toml`."""
    for row in published.published()["hyperparameters"]:
        where = "published.toml, " + ", ".join(
            row[key] for key in ("paper", "data", "network", "method")
        )
        for table in (published.values_of(row), row.get("code", {})):
            known = {k: v for k, v in table.items() if k not in FACTS}
            checked(Settings, known, where)


def settings_of(cell, training, scale):
    """Returns the `Settings` of a training.

    At the paper's scale, a setting comes from the paper; if the paper does not
    print it, from the authors' code; otherwise from `[open]` in `chosen.toml`.
    At the other scales, all settings come from `chosen.toml`: `[medium]` has
    tables for each paper, as `[open]` has; `[small]` has one for each training.
    The options of the cell replace the settings from files.

    Args:
        cell: The `Cell`.
        training: Name of the training.
        scale: The scale.
    """
    where = f"{cell.paper}, {cell.where}, {cell.label}"
    options = check_options(dict(cell.options), where)
    if scale == "paper":
        found = _of_paper("open", cell, training)
        found |= _printed(cell, training, options.get("augmented"))
    elif scale == "medium":
        found = _of_paper(scale, cell, training)
    else:
        tables = chosen()["small"]
        found = tables["all"] | tables.get(training, {})
        if scale == "smoke":
            found |= chosen()["smoke"]
    found |= options
    if "prior_variance" in found:
        found["prior_precision"] = 1 / found.pop("prior_variance")
    return record(Settings, found, where)


def _printed(cell, training, augmented):
    """Returns the printed settings of a training, or of a cell's method."""
    check_published()
    names = [training, cell.method]
    if dict(cell.options).get("covariance") in ("scalar", "diagonal"):
        names.insert(0, f"{training}, learned variances")
    for name in names:
        try:
            found = published.settings(
                cell.paper,
                published.printed_data(cell.data),
                cell.network,
                name,
                augmented,
                code=True,
            )
        except ValueError as error:
            reason = error
        else:
            return {k: v for k, v in found.items() if k not in FACTS}
    raise SystemExit(str(reason))


def _of_paper(part, cell, training):
    """Returns the settings of a part of `chosen.toml` for a cell's paper.

    If several tables have a setting, the most specific one counts.
    """
    tables = chosen()[part]
    found, of_paper = dict(tables["all"]), tables.get(cell.paper, {})
    for name in ("all", training, cell.data, cell.network):
        found |= of_paper.get(name, {})
    return found
