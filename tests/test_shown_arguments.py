"""What an editor shows: the type checker and the docstrings of arguments."""

import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import is_typeddict

import keras
import pytest

import keras_bdl as bdl
from tests.helpers import options_of

CODE = Path(__file__).parent / "user_code"


def test_type_checker_accepts_right_code_and_refuses_each_mistake():
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", CODE]
    checked = subprocess.run(
        command, capture_output=True, text=True, cwd=CODE.parent.parent
    )
    assert not checked.stderr
    errors = re.findall(r"(\w+)\.py:(\d+): error:", checked.stdout)
    lines = (CODE / "mistakes.py").read_text().splitlines()
    marked = {str(i) for i, line in enumerate(lines, 1) if "  # " in line}
    assert {line for file, line in errors if file == "mistakes"} == marked
    assert {file for file, _ in errors} == {"mistakes"}, checked.stdout


MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(bdl.__path__, "keras_bdl.")
]
# `TypedDict` classes with arguments, which a class or function of their folder
# takes one by one.
OPTIONS = {
    f"{module.__name__}.{name}": (value, module)
    for module in MODULES
    for name, value in vars(module).items()
    if is_typeddict(value) and value.__module__ == module.__name__
}


def entries(doc):
    """Returns the texts of the arguments of a docstring, by their names."""
    block = inspect.cleandoc(doc).partition("\nArgs:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): ((?:.*\n? {8})*.*)", block, re.M)
    return {name: " ".join(text.split()) for name, text in found}


def takers(module, names):
    """Yields the parameters of what takes all names, in a module's folder."""
    for other in MODULES:
        if other.__package__ != module.__package__:
            continue
        for value in vars(other).values():
            if getattr(value, "__module__", None) != other.__name__:
                continue
            if inspect.isclass(value):
                value = vars(value).get("__init__")
            if inspect.isfunction(value):
                parameters = inspect.signature(value).parameters
                if names <= set(parameters):
                    yield parameters


@pytest.mark.parametrize("options", OPTIONS)
def test_every_option_is_documented_with_its_default(options):
    kind, module = OPTIONS[options]
    names = set(kind.__annotations__)
    if "Args:" not in kind.__doc__:  # another class documents them
        owners = [*documenting(kind), keras.layers.Layer]
        taken = {p for owner in owners for p in parameters(owner)}
        assert (len(owners) > 1 or not names) and names <= taken
        return
    texts = entries(kind.__doc__)
    assert set(texts) == names
    owners = list(takers(module, names))
    defaults = {name: {repr(p[name].default) for p in owners} for name in names}
    for name, text in texts.items():
        (default,) = defaults[name]
        said = re.search(r"Defaults to `([^`]*)`", text)
        assert said, f"{name}: no default"
        assert repr(eval(said[1])) == default, name


def documenting(kind):
    """Returns the classes that the docstring of shared arguments names."""
    roots = {"keras": keras, "keras_bdl": bdl}
    paths = re.findall(r"`((?:keras|keras_bdl)\.[\w.]+)`", kind.__doc__)
    return [
        functools.reduce(getattr, rest, roots[root])
        for root, *rest in (path.split(".") for path in paths)
    ]


def parameters(taker):
    """Returns the names of arguments, also of those that a kind holds."""
    kind = options_of(taker)
    # Keras hides the arguments of its layers behind `__new__`.
    call = taker.__init__ if inspect.isclass(taker) else taker
    names = set(inspect.signature(call).parameters)
    return names | set(kind.__annotations__ if kind else ())


TAKERS = [
    (f"{folder}.{name}", getattr(getattr(bdl, folder), name))
    for folder in bdl.__all__
    if inspect.ismodule(getattr(bdl, folder))
    for name in getattr(getattr(bdl, folder), "__all__", [])
] + [
    (name, getattr(bdl, name))
    for name in bdl.__all__
    if callable(getattr(bdl, name))
]


@pytest.mark.parametrize(
    ("name", "taker"), [t for t in TAKERS if options_of(t[1])]
)
def test_docstring_says_where_shared_options_are_documented(name, taker):
    kind = options_of(taker)
    if not kind.__annotations__:
        return
    doc = inspect.getdoc(taker)
    if "Args:" in kind.__doc__:
        assert f"{kind.__name__}`" in doc, name
    else:
        # `Conv2D` documents the arguments of convolutions of every dimension.
        named = [re.sub(r"\d", "", one.__name__) for one in documenting(kind)]
        assert any(f"{one}`" in re.sub(r"\d", "", doc) for one in named), name
