"""The public names of the package, and where pages mention them."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import keras_bdl

ROOT = Path(__file__).parents[3]
PACKAGE = Path(keras_bdl.__file__).parent  # may be installed elsewhere
GUIDES = ROOT / "examples" / "guides"
MENTION = re.compile(r"\b(?:keras_bdl|bdl)((?:\.[A-Za-z]\w*)+)")


@dataclass(frozen=True, eq=False)
class PublicName:
    """A public class, function, module or value, with all of its public paths.

    Attributes:
        path: The path of its page below `keras_bdl`, such as
            `optimizers.IVON`, or `fit_laplace`.
        others: Other paths of the same object, such as `IVON`.
        value: The object.
    """

    path: str
    others: tuple[str, ...]
    value: Any

    @property
    def folder(self) -> str:
        """Name of the public folder; empty at the top level."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The name without its folder."""
        return self.path.rpartition(".")[2]

    @property
    def source(self) -> Path | None:
        """File of a class or function, relative to the repository."""
        kinds = (inspect.isclass, inspect.isfunction, inspect.ismodule)
        if not any(kind(self.value) for kind in kinds):
            return None
        file = inspect.getsourcefile(inspect.unwrap(self.value))
        return Path(PACKAGE.name) / Path(file).relative_to(PACKAGE)


def folders() -> dict[str, Any]:
    """Returns the public folders of the package by name."""
    return {
        name: getattr(keras_bdl, name)
        for name in keras_bdl.__all__
        if inspect.ismodule(getattr(keras_bdl, name))
    }


@cache
def public_names() -> list[PublicName]:
    """Returns every public name once, in alphabetical order."""
    paths: dict[int, list[str]] = {}
    values = {}
    modules = {"": keras_bdl, **folders()}
    for folder, module in modules.items():
        for name in module.__all__:
            value = getattr(module, name)
            if folder or not inspect.ismodule(value):
                path = f"{folder}.{name}" if folder else name
                paths.setdefault(id(value), []).append(path)
                values[id(value)] = value
    found = []
    for key, all_paths in paths.items():
        value = values[key]
        home = getattr(value, "__module__", "").split(".")[1:2]
        # The folder of the file comes first, the short name last.
        first, *others = sorted(
            all_paths,
            key=lambda p: (p.split(".")[:1] != home, "." not in p, p),
        )
        found.append(PublicName(first, tuple(others), value))
    return sorted(found, key=lambda n: (n.folder, n.name.lower(), n.name))


def python_guides() -> list[Path]:
    """Returns the guides that are Python files."""
    files = sorted(GUIDES.glob("*.py"))
    return [f for f in files if "# %% [markdown]" in f.read_text()]


@cache
def methods_in_guides() -> frozenset[str]:
    """Returns the names of methods that the README or a guide calls."""
    files = [ROOT / "README.md", *GUIDES.glob("*.md"), *python_guides()]
    return called_methods("\n".join(file.read_text() for file in files))


def called_methods(text: str) -> frozenset[str]:
    """Returns the names of methods that a text calls: `rescaled`."""
    return frozenset(re.findall(r"\.(\w+)\(", text))


def mentions(text: str, by_path: dict[str, PublicName]) -> Iterator[PublicName]:
    """Yields the public names that a text mentions as `bdl.` or `keras_bdl.`.

    Args:
        text: Prose or code.
        by_path: Every public name by each of its paths.
    """
    for found in MENTION.finditer(text):
        parts = found[1][1:].split(".")
        for length in (2, 1):
            name = by_path.get(".".join(parts[:length]))
            if name is not None and len(parts) >= length:
                yield name
                break


def by_path() -> dict[str, PublicName]:
    """Returns every public name by each of its paths."""
    return {
        path: name
        for name in public_names()
        for path in (name.path, *name.others)
    }
