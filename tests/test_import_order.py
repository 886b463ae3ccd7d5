"""The folders of the package import one another in one direction."""

import ast
from pathlib import Path

# Not imported: a circle is to be named, and not to be an error of Python.
PACKAGE = Path(__file__).parents[1] / "keras_bdl"

# A folder, or a file beside the folders, imports only those above it.
ORDER = [
    "_keras",
    "_backend",
    "_aliases",
    "_arguments",
    "_memory",
    "_protocols",
    "_replaced_in_thread",
    "distribute",
    "_saving",
    "_random",
    "_reports",
    "likelihoods",
    "_data",
    "distributions",
    "priors",
    "schedules",
    "curvature",
    "layers",
    "posteriors",
    "prediction",
    "metrics",
    "evaluation",
    "conformal",
    "_models",
    "_conversion",
    "optimizers",
    "objectives",
    "_laplace",
    "diagnostics",
    "callbacks",
    "continual",
    "applications",
    "datasets",
    "plots",
    "extend",
]


def folder_of(module):
    """Returns the folder of a module of the package, or `None`."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == "keras_bdl" and rest else None


def imports():
    """Yields a file, the imported folder, and whether a function does so."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == PACKAGE / "__init__.py":
            continue
        tree = ast.parse(path.read_text())
        at_top = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{a.name}" for a in node.names]
            else:
                continue
            for folder in filter(None, map(folder_of, modules)):
                yield path, folder, id(node) not in at_top


def test_every_folder_has_its_place_in_the_order():
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    files = {p.stem for p in PACKAGE.glob("*.py")} - {"__init__"}
    assert folders | files == set(ORDER)


def test_no_folder_imports_one_below_it():
    back = [
        f"{path.relative_to(PACKAGE)} imports {folder}"
        for path, folder, _ in imports()
        for own in [path.relative_to(PACKAGE).with_suffix("").parts[0]]
        if own != folder and ORDER.index(own) < ORDER.index(folder)
    ]
    assert not back


def test_no_import_of_the_package_hides_in_a_function():
    hidden = [f"{path}: {folder}" for path, folder, hides in imports() if hides]
    assert not hidden
