"""Arguments that are declared once and shown wherever they are accepted."""

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

_Function = TypeVar("_Function", bound=Callable)

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
# The sections that follow `Args:` in a docstring.
_AFTER = (
    "Attributes",
    "Call arguments",
    "Output shape",
    "Returns",
    "Example",
    "Reference",
)
_ENTRY = re.compile(r" {4}[*\w][\w, *`]*:")


class InheritedArguments:
    """Adds the arguments of the base classes to the signature and to `help`.

    A class declares, documents and checks the arguments that it owns, and
    passes `**kwargs` to its base. A class that owns no argument needs no
    `__init__`.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        owners = _owners(cls)
        cls.__signature__ = signature = _signature(owners)
        if cls.__doc__:  # `python -OO` drops docstrings
            bases = [owner.__doc__ for owner in owners if owner is not cls]
            cls.__doc__ = _documentation(
                cls.__doc__, bases, order=list(signature.parameters)
            )


def inherits_arguments(
    owner: Callable, *, without: tuple[str, ...] = ()
) -> Callable[[_Function], _Function]:
    """Decorates a function that passes its `**options` to another callable.

    The signature and the docstring of the function then show the arguments
    of that callable, too.

    Args:
        owner: The class or function that takes the options.
        without: Names of arguments whose values the function sets itself.
            Defaults to `()`.
    """

    def decorate(function):
        signature = inspect.signature(function)
        own = [
            p
            for p in signature.parameters.values()
            if p.kind is not p.VAR_KEYWORD
        ]
        hidden = {p.name for p in own} | set(without)
        added = [
            p.replace(kind=p.KEYWORD_ONLY)
            for p in inspect.signature(owner).parameters.values()
            if p.name not in hidden and p.kind is not p.VAR_KEYWORD
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])
        if function.__doc__:  # `python -OO` drops docstrings
            function.__doc__ = _documentation(
                function.__doc__,
                [owner.__doc__],
                order=[p.name for p in (*own, *added)],
                without=(*without, "**options"),
                rest=False,
            )
        return function

    return decorate


def _owners(cls):
    """Returns the classes whose `__init__` takes arguments given to `cls`."""
    owners = []
    for owner in cls.__mro__:
        if "__init__" not in vars(owner):
            continue
        kinds = {p.kind for p in _parameters(owner)}
        ours = issubclass(owner, InheritedArguments)
        if (
            not ours
            and owners
            and inspect.Parameter.VAR_POSITIONAL
            not in {p.kind for p in _parameters(owners[-1])}
        ):
            # The last class of ours names all arguments it passes to Keras.
            break
        owners.append(owner)
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return owners


def _parameters(owner):
    return list(inspect.signature(owner.__init__).parameters.values())[1:]


def _signature(owners):
    """Returns one signature with the parameters of all `owners`.

    If several classes have a parameter, the first class defines the parameter.
    """
    positional, keyword, rest = {}, {}, []
    passes_positional = True  # whether positional arguments reach the owner
    for owner in owners:
        parameters = _parameters(owner)
        rest = [p for p in parameters if p.kind is p.VAR_KEYWORD]
        for parameter in parameters:
            if parameter.name in positional or parameter.name in keyword:
                continue
            if parameter.kind in _POSITIONAL:
                optional = any(
                    p.default is not p.empty for p in positional.values()
                )
                required = parameter.default is parameter.empty
                # A signature has no required argument after an optional one.
                if passes_positional and not (optional and required):
                    positional[parameter.name] = parameter
                else:
                    keyword[parameter.name] = parameter.replace(
                        kind=parameter.KEYWORD_ONLY
                    )
            elif parameter.kind is parameter.KEYWORD_ONLY:
                keyword[parameter.name] = parameter
        passes_positional = passes_positional and (
            not positional
            or any(p.kind is p.VAR_POSITIONAL for p in parameters)
        )
    return inspect.Signature([*positional.values(), *keyword.values(), *rest])


def _documentation(doc, bases, order, without=(), rest=True):
    """Returns a docstring with the `Args:` of the bases, in the given order."""
    head, entries, tail = _sections(inspect.cleandoc(doc))
    known = {names: text for names, text in entries if names not in without}
    for i, base in enumerate(bases, 1):
        for names, text in _sections(inspect.cleandoc(base or ""))[1]:
            last = rest and i == len(bases) and names.startswith("**")
            if (last or not names.startswith("*")) and names not in without:
                known.setdefault(names, text)
    places = {name: place for place, name in enumerate(order)}
    arguments = sorted(
        (n for n in known if not n.startswith("*")),
        key=lambda names: places.get(names.partition(",")[0], len(places)),
    )
    arguments += [n for n in known if n.startswith("**")]
    if not arguments:
        return doc
    lines = "\n".join(known[name] for name in arguments)
    return "\n\n".join(filter(None, [head, f"Args:\n{lines}", tail])) + "\n"


def _sections(doc):
    """Returns the text before `Args:`, the entries by name, and the rest."""
    head, found, body = f"\n{doc}".partition("\nArgs:\n")
    if not found:
        after = [head.find(f"\n\n{section}:\n") for section in _AFTER]
        cut = min((at for at in after if at >= 0), default=len(head))
        return head[:cut].strip("\n"), [], head[cut:].strip("\n")
    block, _, tail = body.partition("\n\n")
    entries = []
    for line in block.splitlines():
        if _ENTRY.match(line):
            entries.append([line.strip().partition(":")[0], line])
        elif entries:
            entries[-1][1] += f"\n{line}"
    return head.strip("\n"), [tuple(e) for e in entries], tail.strip("\n")
