"""Checks of the files that an export writes."""

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What a part of the name of an operation says about its origin.
_ORIGINS = {
    "Grad": "A linearised network needs derivatives of all layers after its "
    "first uncertain weight. Use a posterior of the last layer, or "
    "`linearized=False`.",
    "Eig": 'With `link="monte_carlo"`, only a posterior of the last layer '
    "works.",
    "TensorList": "A recurrent layer needs `unroll=True`.",
    "Random": "The network draws random numbers.",
}


def check_litert(filepath: str) -> None:
    """Warns if LiteRT needs the Flex delegate to run a file.

    Args:
        filepath: Path of the file.
    """
    names = re.findall(rb"Flex(\w+)", Path(filepath).read_bytes())
    missing = sorted({name.decode() for name in names})
    if missing:
        warnings.warn(
            f"LiteRT has no operations {missing}. The file needs the Flex "
            "delegate of TensorFlow, which the package `ai-edge-litert` does "
            f"not have. {_advice(missing)}Received: filepath={filepath!r}",
            stacklevel=3,
        )


def require_onnx() -> None:
    """Raises an error with a `pip` command if the converter is missing."""
    try:
        import onnx  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(
            '`format="onnx"` needs the packages onnx and tf2onnx. Run '
            '`pip install "keras-bdl[export]"`.'
        ) from error


def check_onnx(filepath: str) -> None:
    """Raises an error and deletes the file if ONNX cannot run it.

    The converter writes such files without an error.

    Args:
        filepath: Path of the file.
    """
    import onnx

    nodes = _nodes(onnx.load(filepath, load_external_data=False).graph)
    missing = sorted(
        {
            node.op_type
            for node in nodes
            if not node.domain and not onnx.defs.has(node.op_type)
        }
    )
    if missing:
        os.remove(filepath)
        raise ValueError(
            f"ONNX has no operations {missing}, which this model needs. "
            f'{_advice(missing)}The format "tf_saved_model" always works. '
            f"Received: filepath={filepath!r}"
        )


def _nodes(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of the graphs inside."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _advice(missing):
    found = [
        text
        for part, text in _ORIGINS.items()
        if any(part in name for name in missing)
    ]
    return "".join(text + " " for text in found)
