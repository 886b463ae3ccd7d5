"""The pages of the API: one for each public name and each folder."""

import inspect
import os
import re
import textwrap
from pathlib import PurePosixPath
from types import ModuleType

import keras_bdl
from website.docstrings import to_markdown
from website.public_names import ROOT
from website.public_names import PublicName
from website.public_names import called_methods
from website.public_names import folders
from website.public_names import methods_in_guides

WIDTH = 72


def page_of(name: PublicName) -> str:
    """Returns the path of the page of a public name."""
    folder = folders().get(name.folder, keras_bdl)
    # Some file systems take `Step` and `step` for one.
    same = [n for n in folder.__all__ if n.lower() == name.name.lower()]
    kind = "_class" if len(same) > 1 and inspect.isclass(name.value) else ""
    return f"api/{name.folder or 'keras_bdl'}/{name.name}{kind}.md"


def name_page(name: PublicName, used_in: dict[str, str]) -> str:
    """Returns the page of a public name in Markdown.

    Args:
        name: The public name.
        used_in: Titles of the pages that mention the name, by their paths.
    """
    here = PurePosixPath(page_of(name)).parent
    paths = [f"`keras_bdl.{p}`" for p in reversed((name.path, *name.others))]
    lines = [f"# {name.name}", "", " · ".join(paths)]
    if name.source is not None:
        source = os.path.relpath(name.source, here)
        lines[-1] += f" · [source]({source})"
    lines += ["", _signature(name.value, paths[0].strip("`"))]
    lines += [to_markdown(_documentation(name))]
    hooks: dict = {}
    if inspect.isclass(name.value):
        methods = _methods(name.value)
        hooks = _hooks(name.value, methods)
        own = {m: v for m, v in methods.items() if m not in hooks}
        lines += _members("Methods and properties", own)
    if inspect.ismodule(name.value):
        lines += _members("Functions", _functions(name.value))
    if used_in:
        lines += ["## Used in", ""]
        for path, title in used_in.items():
            lines += [f"- [{title}]({os.path.relpath(path, here)})"]
        lines += [""]
    lines += _members("For authors of methods", hooks)
    return "\n".join(lines) + "\n"


def folder_page(folder: str, module: ModuleType, names: list) -> str:
    """Returns the page of a public folder, with a table of its names."""
    here = PurePosixPath(f"api/{folder}")
    text = inspect.getdoc(module)
    if module is keras_bdl:  # Its lists are made for `help`.
        text = text[: text.index("Methods:")]
    code = "import keras_bdl as bdl"
    if module is not keras_bdl:
        code = f"from keras_bdl import {folder}"
    lines = [f"# {folder}", "", f"```py\n{code}\n```", "", to_markdown(text)]
    lines += ["| name | |", "|---|---|"]
    for name in names:
        first = (_documentation(name).splitlines() or [""])[0]
        path = os.path.relpath(page_of(name), here)
        lines.append(f"| [`{name.name}`]({path}) | {first} |")
    return "\n".join(lines) + "\n"


def _documentation(name):
    """Returns the docstring of a name, or what a value is."""
    if name.source is None:
        return f"A value of the type `{type(name.value).__name__}`."
    return inspect.getdoc(name.value) or ""


def _signature(value, path):
    """Returns a call with all arguments and defaults as a block of code."""
    if not callable(value):
        return f"```py\n{path}\n```\n"
    try:
        signature = inspect.signature(value)
    except ValueError:  # A class without arguments of its own.
        return f"```py\n{path}(...)\n```\n"
    return f"```py\n{path}({_arguments(signature)})\n```\n"


def _arguments(signature, width=WIDTH):
    """Returns arguments without annotations, one a line if they are many."""
    bare = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name not in ("self", "cls")
    ]
    inside = str(inspect.Signature(bare))[1:-1]
    inside = re.sub(r"<(?:class|function) '?([\w.]+)'?[^>]*>", r"\1", inside)
    if len(inside) <= width:
        return inside
    parts = re.split(r", (?=[*/\w]+(?:=|,|$))", inside)
    return "\n    " + ",\n    ".join(parts) + ",\n"


def _members(title, members):
    """Returns a section with the documented members of a class or module."""
    lines = []
    for name, value in sorted(members.items()):
        text = inspect.getdoc(value)
        if not text:
            continue
        call = name
        if callable(value):
            arguments = _arguments(inspect.signature(value), width=10**4)
            call = f"{name}({arguments})"
        body = textwrap.indent(to_markdown(text), "    ").strip()
        lines += [f"`{call}`", f":   {body}", ""]
    return [f"## {title}", "", *lines] if lines else []


def _functions(module):
    """Returns the functions that a module defines, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }


def _methods(cls):
    """Returns the methods and properties that the package adds to a class."""
    found = {}
    for base in cls.__mro__:
        if base.__module__.startswith("keras_bdl"):
            for name, value in vars(base).items():
                value = getattr(value, "__func__", value)
                is_new = not _is_foreign(cls, name)
                if is_new and not name.startswith("_") and _is_member(value):
                    found.setdefault(name, value)
    return found


def _hooks(cls, methods):
    """Returns the methods for authors: no guide and no example calls them.

    A class without subclasses and package bases has none: nothing extends it.
    """
    family = {*cls.__mro__, *cls.__subclasses__()}
    family = {c for c in family if c.__module__.startswith("keras_bdl")}
    if family == {cls}:
        return {}
    examples = "\n".join(inspect.getdoc(c) or "" for c in family)
    called = methods_in_guides() | called_methods(examples)
    return {
        name: value
        for name, value in methods.items()
        if inspect.isfunction(value) and name not in called
    }


def _is_member(value):
    """Returns whether a class attribute is a method or a property."""
    return inspect.isfunction(value) or isinstance(value, property)


def _is_foreign(cls, name):
    """Returns whether a base class of another package has the attribute."""
    return any(
        name in vars(base)
        for base in cls.__mro__
        if not base.__module__.startswith("keras_bdl")
    )


def source_page(path: PurePosixPath) -> str:
    """Returns a page that shows a Python file of the repository."""
    text = (ROOT / path).read_text()
    return (
        "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"
        f"# {path.name}\n\n`{path}`\n\n"
        f'``````py linenums="1"\n{text}``````\n'
    )
