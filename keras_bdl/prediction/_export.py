"""Exports of a `PosteriorPredictive` to SavedModel, LiteRT and ONNX."""

import contextlib
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.prediction._options import MONTE_CARLO
from keras_bdl.prediction._sample_loop import unrolled_loops


def export(
    model: Any,
    filepath: str,
    *,
    format: str,
    verbose: bool | None,
    input_signature: Any,
    **kwargs: Any,
) -> None:
    """Exports a `PosteriorPredictive`, as its method `export` says."""
    path = StoragePath(filepath)
    if input_signature is None:
        if model._symbols is None:
            raise ValueError(
                "`input_signature` must be given for a network that does "
                "not declare its inputs, or call the model once before. "
                "Received: input_signature=None"
            )
        input_signature = [model._symbols.value]
    drops = any(group.layout.drops for group in model._groups.value)
    tables = _tables_in(model._network.value)
    if format != "tf_saved_model":
        # The export of Keras follows the attributes of the model.
        model.lookup_tables = tf.Module()
        model.lookup_tables.all = tables
        if format in _CHECKS:
            _check_random(model, format, drops)
        if format == "onnx":
            require_onnx()
        with _written_locally(path) as local:
            with unrolled_loops():
                keras.Model.export(
                    model,
                    local,
                    format=format,
                    verbose=verbose,
                    input_signature=input_signature,
                    **kwargs,
                )
            if format in _CHECKS:
                _CHECKS[format](local)
        return
    # The export of Keras stores each variable twice.
    archive = keras.export.ExportArchive()
    for table in tables:
        archive.track(table)
    archive.add_endpoint(
        "serve",
        lambda inputs: model(_of_own_shape(inputs)),
        input_signature,
        **kwargs,
    )
    if drops:
        archive.add_endpoint(
            "serve_with_seed",
            lambda inputs, seed: model(_of_own_shape(inputs), seed=seed),
            [*input_signature, tf.TensorSpec((), tf.int32, name="seed")],
        )
    archive.write_out(str(path), verbose=True if verbose is None else verbose)


def _check_random(model: Any, format: str, drops: bool) -> None:
    """Raises an error if a format lacks random numbers that are needed."""
    if drops:
        raise ValueError(
            f"`format={format!r}` has no random numbers for the masks of "
            'dropout. Use `format="tf_saved_model"`. '
            f"Received: a model with dropout, {model.name!r}"
        )
    if format == "litert" and model._options.link == MONTE_CARLO:
        raise ValueError(
            '`format="litert"` has no random numbers for '
            '`link="monte_carlo"`. Use `link=None`, which draws samples of '
            "the same Gaussian in advance. "
            f"Received: format={format!r}"
        )


@contextlib.contextmanager
def _written_locally(path: StoragePath) -> Iterator[str]:
    """Yields a local path, whose file is then copied to a remote path."""
    if not path.is_remote:
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, path.name)
        yield local
        # Without a pointer: other programs read the file.
        tf.io.gfile.copy(local, path, overwrite=True)


def _of_own_shape(inputs: Any) -> Any:
    """Returns the inputs, with a check of their shapes in the graph.

    A signature of a SavedModel does not check shapes.
    """
    return keras.tree.map_structure(
        lambda tensor: tf.ensure_shape(tensor, tensor.shape), inputs
    )


def _tables_in(network: keras.Model) -> list:
    """Returns the lookup tables of all layers."""
    return [
        found
        for found in tf.train.TrackableView(network).descendants()
        if isinstance(found, tf.saved_model.experimental.TrackableResource)
    ]


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
    """Warns if LiteRT needs the Flex delegate to run a file."""
    names = re.findall(rb"Flex(\w+)", Path(filepath).read_bytes())
    missing = sorted({name.decode() for name in names})
    if missing:
        warnings.warn(
            f"LiteRT has no operations {missing}. The file needs the Flex "
            "delegate of TensorFlow, which the package `ai-edge-litert` does "
            f"not have. {_advice(missing)}Received: filepath={filepath!r}",
            stacklevel=4,
        )


def check_onnx(filepath: str) -> None:
    """Raises an error and deletes the file if ONNX cannot run it.

    The converter writes such files without an error.
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


# A check of the file, for each format that may lack operations.
_CHECKS = {"litert": check_litert, "onnx": check_onnx}


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


def _nodes(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of the graphs inside."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _advice(missing: list[str]) -> str:
    found = [
        text
        for part, text in _ORIGINS.items()
        if any(part in name for name in missing)
    ]
    return "".join(text + " " for text in found)
