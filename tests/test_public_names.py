"""The public names, frozen, and the names that examples use."""

import ast
import inspect
import tomllib
from pathlib import Path

import keras_bdl

TESTS = Path(__file__).parent
FROZEN = tomllib.loads((TESTS / "public_names.toml").read_text())
FOLDERS = {
    name: getattr(keras_bdl, name)
    for name in keras_bdl.__all__
    if inspect.ismodule(getattr(keras_bdl, name))
}


def test_every_public_name_is_frozen():
    actual = {"keras_bdl": sorted(keras_bdl.__all__)}
    for name, module in FOLDERS.items():
        actual[name] = sorted(getattr(module, "__all__", []))
    assert actual == FROZEN


def test_every_public_name_exists():
    missing = [
        f"{folder}.{name}"
        for folder, names in FROZEN.items()
        for name in names
        if not hasattr(FOLDERS.get(folder, keras_bdl), name)
    ]
    assert not missing


def private_names(path):
    """Yields what a script takes of the package without it being public."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            package, _, folder = node.module.partition(".")
            if package == "keras_bdl":
                public = FROZEN.get(folder or "keras_bdl", [])
                for alias in node.names:
                    if alias.name not in public:
                        yield f"{path.name}: {node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute):
            names = ast.unparse(node).split(".")
            if names[0] in ("bdl", "keras_bdl"):
                names = names[1:]
                folder = names[0] if len(names) > 1 else "keras_bdl"
                public = FROZEN.get(folder)
                if public is not None and names[-1] not in public:
                    is_short = len(names) <= 2
                    if is_short and not names[-1].startswith("__"):
                        yield f"{path.name}: {'.'.join(names)}"


def test_examples_use_public_names_alone():
    scripts = sorted((TESTS.parent / "examples").rglob("*.py"))
    assert len(scripts) > 30
    assert not [name for path in scripts for name in private_names(path)]
