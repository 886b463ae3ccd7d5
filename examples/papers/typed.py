"""Typed values and frozen dataclasses from TOML tables."""

import dataclasses
import functools
import types
import typing

_WORDS = {
    bool: "`true` or `false`",
    int: "an integer",
    float: "a number",
    str: "a string",
}
# `Literal["a"] | None` is a `typing.Union`, `int | None` a `types.UnionType`.
_UNIONS = (types.UnionType, typing.Union)


class _WrongType(Exception):
    """A value is not of the declared type."""


def record(kind, table, where):
    """Returns a frozen dataclass with the values of a table.

    Ends the program with an error message if the table has an unknown key,
    lacks a key without a default, or has a value of the wrong type.

    Args:
        kind: The dataclass. Its annotations declare the types.
        table: The table.
        where: Place of the table, for error messages.
    """
    values = checked(kind, table, where)
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.name not in values:
            raise SystemExit(
                f"{where}: the key `{field.name}` is missing. It must be "
                f"{_in_words(_types(kind)[field.name])}."
            )
    return kind(**values)


def checked(kind, table, where):
    """Checks a table whose keys are fields of a dataclass; returns its values.

    Integers become floats where the dataclass declares a float, and lists
    become tuples.

    Args:
        kind: The dataclass.
        table: The table.
        where: Place of the table, for error messages.
    """
    declared = _types(kind)
    for name in table:
        if name not in declared:
            raise SystemExit(
                f"{where}: the key `{name}` is unknown. Known keys: "
                f"{', '.join(declared) or 'none'}."
            )
    return {
        name: _value(name, value, declared[name], where)
        for name, value in table.items()
    }


def _value(name, value, declared, where):
    try:
        return _converted(value, declared)
    except _WrongType:
        raise SystemExit(
            f"{where}: `{name}` must be {_in_words(declared)}. "
            f"Received: {name}={value!r}"
        ) from None


@functools.cache
def _types(kind):
    """Returns the declared type of each field, by name."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _converted(value, declared):
    """Returns a value, converted to the declared type."""
    origin, parts = typing.get_origin(declared), typing.get_args(declared)
    if origin in _UNIONS:  # TOML has no `None`
        (declared,) = (part for part in parts if part is not type(None))
        return _converted(value, declared)
    if origin is typing.Literal:
        if value not in parts:
            raise _WrongType
        return value
    if origin is tuple:
        return _tuple(value, parts)
    accepted = (int, float) if declared is float else declared
    # In Python, `True` is an integer.
    if isinstance(value, bool) and declared is not bool:
        raise _WrongType
    if not isinstance(value, accepted):
        raise _WrongType
    return declared(value)


def _tuple(value, parts):
    if not isinstance(value, list | tuple):
        raise _WrongType
    if parts[-1] is Ellipsis:
        parts = parts[:1] * len(value)
    if len(parts) != len(value):
        raise _WrongType
    return tuple(map(_converted, value, parts))


def _in_words(declared):
    origin, parts = typing.get_origin(declared), typing.get_args(declared)
    if origin in _UNIONS:
        return " or ".join(
            _in_words(part) for part in parts if part is not type(None)
        )
    if origin is typing.Literal:
        return "one of " + ", ".join(f'"{part}"' for part in parts)
    if origin is not tuple:
        return _WORDS[declared]
    if parts[-1] is Ellipsis:
        return f"a list, each value {_in_words(parts[0])}"
    return f"a list of {', '.join(map(_in_words, parts))}"
