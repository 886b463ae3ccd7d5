"""Reads the text of a program: collectives, bytes, what a TPU cannot run.

Programs are StableHLO, which TensorFlow lowers, or HLO, which XLA compiles.
This file imports neither TensorFlow nor JAX.
"""

import math
import re

_BYTES = {
    **{"pred": 1, "i1": 1, "s8": 1, "i8": 1, "u8": 1, "ui8": 1},
    **{"bf16": 2, "f16": 2, "s16": 2, "i16": 2, "u16": 2, "ui16": 2},
    **{"f32": 4, "s32": 4, "i32": 4, "u32": 4, "ui32": 4},
    **{"f64": 8, "s64": 8, "i64": 8, "u64": 8, "ui64": 8},
}
_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
)
_STABLEHLO_COLLECTIVE = re.compile(
    r'"?stablehlo\.('
    + "|".join(name.replace("-", "_") for name in _COLLECTIVES)
    + r")\b"
)
_HLO_COLLECTIVE = re.compile(
    r"= (?P<shape>.*?) (?P<name>" + "|".join(_COLLECTIVES) + r")(-start)?\("
)
# The line of a StableHLO operation with the type of its result: the only line
# or, for an operation with regions, the last.
_RESULT = re.compile(
    r" *(%[^=]* = (?!(\w+\.get_tuple_element|call)\b)|\}\) ).*"
)
_FUNCTION = re.compile(r" *func\.func .*?@([^\s(]+)\(")
_CALL = re.compile(r"(?<!custom_)call @([^\s(]+)\(")
_TENSOR = re.compile(r"tensor<([^>]*)>")
# TensorFlow writes eight elements of a mask in a byte, JAX reads one.
_BITS = re.compile(r'dense<"0x(?P<digits>\w+)"> : tensor<(?P<dims>[\dx]+)xi1>')
_HOST = re.compile(
    r"stablehlo\.(infeed|outfeed|send|recv)\b"
    r"|custom_call @\w*(callback|host)\w*"
)
_DYNAMIC = re.compile(r"tensor<[^>]*\?[^>]*>|stablehlo\.set_dimension_size")


def lowered_collectives(text: str):
    """Returns (name, bytes of the result) of each collective of StableHLO."""
    found, lines = [], _lines(text)
    for line in lines:
        match = _STABLEHLO_COLLECTIVE.search(line)
        if match is None:
            continue
        while ") -> " not in line:  # behind the region that adds
            line = next(lines)
        size = sum(map(_stablehlo_bytes, _results(line)))
        found.append((match[1].replace("_", "-"), size))
    return found


def result_bytes(text: str):
    """Returns the sum of the bytes of the results of StableHLO operations.

    This number needs no compiler. XLA merges operations, so the bytes that a
    chip moves are fewer. A function counts as often as it is called, and the
    body of a loop once.
    """
    return sum(
        _stablehlo_bytes(shape)
        for line in _lines(text)
        if _RESULT.match(line) and not line.endswith("({")
        for shape in _results(line)
    )


def compiled_collectives(text: str):
    """Returns (name, bytes of the result) of each collective of HLO."""
    found = []
    for line in text.splitlines():
        match = _HLO_COLLECTIVE.search(line)
        if match is not None:
            shapes = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", match["shape"])
            sizes = [_size(dtype, dims.split(",")) for dtype, dims in shapes]
            found.append((match["name"], sum(sizes)))
    return found


def complaints(text: str):
    """Returns what a TPU cannot run in a StableHLO program, without repeats."""
    found = []
    for pattern, what in (
        (_DYNAMIC, "dynamic shape"),
        (_HOST, "call of the host"),
    ):
        for line in text.splitlines():
            match = pattern.search(line)
            if match is not None:
                found.append(f"{what}: {match[0]}")
    return list(dict.fromkeys(found))


def for_jax(text: str):
    """Returns a program in which JAX can read every operation and constant."""
    text = _BITS.sub(_bytes_of_bits, text)
    return re.sub(
        r"mhlo\.copy (%\S+) : ", r"stablehlo.optimization_barrier \1 : ", text
    )


def _bytes_of_bits(constant):
    """Returns a constant with a byte for each bit, the lowest bit first."""
    bits = int.from_bytes(bytes.fromhex(constant["digits"]), "little")
    count = math.prod(map(int, constant["dims"].split("x")))
    digits = f"{bits:0{count}b}"[::-1].replace("0", "00").replace("1", "01")
    return f'dense<"0x{digits}"> : tensor<{constant["dims"]}xi1>'


def _lines(text):
    """Yields the lines of `@main` and, at their calls, of other functions.

    TensorFlow also writes the region of every operation as a function that
    nothing calls.
    """
    functions, name = {}, ""
    for line in text.splitlines():
        match = _FUNCTION.match(line)
        name = match[1] if match else name
        functions.setdefault(name, []).append(line)

    def lines_of(name):
        for line in functions[name]:
            yield line
            call = _CALL.search(line)
            if call is not None:
                yield from lines_of(call[1])

    return lines_of("main")


def _results(line):
    _, arrow, types = line.rpartition(") -> ")
    if arrow:
        return _TENSOR.findall(types)
    types = _TENSOR.findall(line.rpartition(" : ")[2])
    # Besides its result, `select` has the type of its condition.
    return types if "stablehlo.while(" in line else types[-1:]


def _stablehlo_bytes(shape):
    *dims, dtype = shape.split("x")
    return _size(dtype, dims)


def _size(dtype, dims):
    return _BYTES[dtype] * math.prod(int(d) for d in dims if d)
