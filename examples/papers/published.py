"""What the papers print: results, claims and hyper-parameters."""

import functools
import tomllib
from pathlib import Path

ANY = "any"
_LABELS = {"paper", "source", "data", "network", "method"}
_ABOUT_THE_ROW = _LABELS | {"based_on", "printed", "code"}


@functools.cache
def published() -> dict:
    """Returns all of `published.toml`, whose head says what is in it."""
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
    """Returns the hyper-parameters of a method in a paper.

    Rows for any data or network give what more specific ones leave out, and
    the method that a row is based on what they all leave out.

    Args:
        paper: Key of `published()["papers"]`.
        data: As in the file.
        network: As in the file.
        method: As in the file.
        augmented: Tells rows apart that differ in nothing else. Defaults to
            `None`: there are none.
        code: Whether what only the authors' code says fills the gaps.
            Defaults to `False`.
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
        values = values | {
            key: value
            for key, value in row.items()
            if key not in _ABOUT_THE_ROW
        }
    return fallback, values


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
