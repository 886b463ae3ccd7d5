"""The published numbers, loaded without the path of `examples/papers`."""

import importlib.util
from pathlib import Path

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
spec = importlib.util.spec_from_file_location(
    "published", PAPERS / "published.py"
)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
published, settings = module.published, module.settings
numbers_of = module.numbers_of


def rows(entry, **labels):
    return [
        row
        for row in published()[entry]["rows"]
        if all(row.get(key) == value for key, value in labels.items())
    ]


def one_row(entry, **labels):
    (found,) = rows(entry, **labels)
    return found
