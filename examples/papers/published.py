"""Results, claims and hyper-parameters that the papers print."""

import functools
import tomllib
from pathlib import Path

ANY = "any"
_LABELS = {"paper", "source", "data", "network", "method"}
_ABOUT_THE_ROW = _LABELS | {"based_on", "printed", "code"}
# Name of data here -> its name in the papers.
_PRINTED_DATA = {"cifar5": "cifar10"}
# No paper says whether variational networks predict with samples or means.
_AT_THE_MEANS = ", at the means"


@functools.cache
def published() -> dict:
    """Returns all of `published.toml`. The head of the file explains it."""
    path = Path(__file__).with_name("published.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def settings(
    paper: str,
    data: str,
    network: str,
    method: str,
    augmented: bool | None = None,
    code: bool = False,
) -> dict:
    """Returns the hyper-parameters of a method in a paper, by name.

    If a row lacks a key, the value comes from a row for any data or any
    network. If those lack the key too, the value comes from the row of the
    method that the row is `based_on`.

    Args:
        paper: Key of `published()["papers"]`.
        data: Name of the data in the file.
        network: Name of the network in the file.
        method: Name of the method in the file.
        augmented: Selects one of two rows that differ in augmentation alone.
            Defaults to `None`, for a method with one row.
        code: Whether values of the authors' code fill gaps. Defaults to
            `False`.
    """
    fallback, values = _merged(paper, data, network, method, augmented)
    return fallback | values if code else values


def _merged(paper, data, network, method, augmented):
    rows = sorted(
        _rows(paper, data, network, method, augmented), key=_specificity
    )
    bases = {row["based_on"] for row in rows if "based_on" in row}
    fallback, values = {}, {}
    if bases:
        (base,) = bases
        fallback, values = _merged(paper, data, network, base, augmented)
    for row in rows:
        fallback = fallback | row.get("code", {})
        values = values | values_of(row)
    return fallback, values


def values_of(row: dict) -> dict:
    """Returns the hyper-parameters of one row, without its labels.

    Args:
        row: A row of `published()["hyperparameters"]`.
    """
    return {k: value for k, value in row.items() if k not in _ABOUT_THE_ROW}


def printed_data(data: str) -> str:
    """Returns the name that the papers print for some data.

    Args:
        data: Name of the data in a recipe.
    """
    return _PRINTED_DATA.get(data, data)


def numbers_of(name: str, cell) -> dict:
    """Returns the numbers that a paper prints for a cell; may be empty.

    Args:
        name: Name of the recipe whose table or figure has the numbers.
        cell: The `Cell`.
    """
    table = published()[name]
    method = cell.method.removesuffix(_AT_THE_MEANS)
    known = {"network": cell.network, "method": method}
    known |= dict(cell.options)
    known["data"] = cell.test or printed_data(cell.data)
    for row in table.get("rows", ()):
        if all(row.get(k) == known.get(k) for k in table["labels"]):
            return row
    return {}


def _rows(paper, data, network, method, augmented):
    rows = [
        row
        for row in published()["hyperparameters"]
        if row["paper"] == paper
        and row["method"] == method
        and row["data"] in (data, ANY)
        and row["network"] in (network, ANY)
        and augmented in (None, row.get("augmented", augmented))
    ]
    names = f"{paper}, {data}, {network}, {method}"
    if not rows:
        raise ValueError(f"The papers give no hyper-parameters of {names}.")
    if len({_specificity(row) for row in rows}) < len(rows):
        raise ValueError(
            "`augmented` must be given where a method has settings with and "
            f"without augmentation. Received: augmented=None for {names}"
        )
    return rows


def _specificity(row):
    return row["data"] != ANY, row["network"] != ANY
