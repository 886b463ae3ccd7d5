"""Reads the text of a program: its collectives, and what a TPU cannot run.

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
_HOST = re.compile(
    r"stablehlo\.(infeed|outfeed|send|recv)\b"
    r"|custom_call @\w*(callback|host)\w*"
)
_DYNAMIC = re.compile(r"tensor<[^>]*\?[^>]*>|stablehlo\.set_dimension_size")


def lowered_collectives(text: str):
    """Returns (name, bytes of the result) of each collective of StableHLO."""
    found, lines = [], iter(text.splitlines())
    for line in lines:
        match = _STABLEHLO_COLLECTIVE.search(line)
        if match is None:
            continue
        while ") -> " not in line:  # behind the region that adds
            line = next(lines)
        size = sum(map(_stablehlo_bytes, _results(line)))
        found.append((match[1].replace("_", "-"), size))
    return found


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
    """Returns a program without the one operation that JAX cannot read."""
    return re.sub(
        r"mhlo\.copy (%\S+) : ", r"stablehlo.optimization_barrier \1 : ", text
    )


def _results(line):
    signature = line.rsplit(") -> ", 1)[1]
    return re.findall(r"tensor<([^>]*)>", signature)


def _stablehlo_bytes(shape):
    *dims, dtype = shape.split("x")
    return _size(dtype, dims)


def _size(dtype, dims):
    return _BYTES[dtype] * math.prod(int(d) for d in dims if d)
