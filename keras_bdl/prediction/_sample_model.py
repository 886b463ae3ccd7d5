"""A Keras model whose weights are posterior samples of a network."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.prediction._average_options import MONTE_CARLO
from keras_bdl.prediction._average_options import AverageOptions
from keras_bdl.prediction._exported_file import check_litert
from keras_bdl.prediction._exported_file import check_onnx
from keras_bdl.prediction._exported_file import require_onnx
from keras_bdl.prediction._quantities import IN_CLOSED_FORM
from keras_bdl.prediction._quantities import as_names
from keras_bdl.prediction._quantities import checked_names
from keras_bdl.prediction._sample_group import GroupLayout
from keras_bdl.prediction._sample_group import SampleGroup
from keras_bdl.prediction._unrolled import unrolled_loops

# A check of the file, for each format that may lack operations.
_CHECKS = {"litert": check_litert, "onnx": check_onnx}


class SampleModel(keras.Model):
    """Base of `PosteriorPredictive`: the weights, their files and exports.

    Args:
        model: The network, built.
        options: The `AverageOptions`.
        layouts: The `GroupLayout` of each group of samples. The weights have
            no values yet.
        outputs: Argument of `PosteriorPredictive`, like all that follow.
        weights_dtype: Dtype in which the samples are stored.
        name: Name of the model.
    """

    def __init__(
        self,
        model: keras.Model,
        options: AverageOptions,
        layouts: Sequence[GroupLayout],
        *,
        outputs: Any,
        weights_dtype: str | None,
        name: str | None,
    ):
        # The network casts its inputs and its weights, each layer by its own
        # policy.
        super().__init__(name=name, dtype="float32")
        self.autocast = False
        self.supports_jit = all(
            layer.supports_jit for layer in _keras.all_layers(model)
        )
        self._network = Untracked(model)
        self._output_names = checked_names(outputs)
        self._options = dataclasses.replace(
            options, keep_samples="samples" in as_names(outputs)
        )
        _check_closed_form(options.link, as_names(outputs))
        self._weights_dtype = weights_dtype
        self._symbols: Any = None
        self._owns_network = False
        self._tables = tf.Module()
        self._groups = Untracked(
            [
                SampleGroup(
                    self,
                    model,
                    number,
                    layout,
                    options=self._options,
                    weights_dtype=weights_dtype,
                )
                for number, layout in enumerate(layouts)
            ]
        )
        self.built = True

    @property
    def num_samples(self) -> int:
        """S, the number of posterior samples."""
        return sum(group.layout.count for group in self._groups.value)

    def fit(self, *args, **kwargs):
        """Raises an error, because the samples are fixed."""
        raise ValueError(
            "A `PosteriorPredictive` holds finished samples and cannot be "
            "trained. Train the network and make a new `PosteriorPredictive`. "
            f"Received: a call of `fit` of {self.name!r}"
        )

    def export(
        self,
        filepath: str,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Exports the model, as `keras.Model.export` does.

        With dropout, a SavedModel has a second endpoint, `serve_with_seed`. Its
        second argument, an integer, selects the masks.

        LiteRT and ONNX need the packages of `keras_bdl[export]`. Their results
        differ from a call by less than `1e-5`. They have no random numbers, so
        dropout needs a SavedModel. The samples run one after the other, in a
        graph whose size grows with their number.

        Args:
            filepath: Path of the result, local or in a bucket.
            format: `"tf_saved_model"`, `"litert"` or `"onnx"`. Defaults to
                `"tf_saved_model"`.
            verbose: Whether to print a message. Defaults to `None`, as Keras.
            input_signature: Specifications of the inputs. Defaults to `None`,
                the inputs of the network.
            **kwargs: Further arguments of `keras.Model.export`.
        """
        path = StoragePath(filepath)
        if input_signature is None:
            if self._symbols is None:
                raise ValueError(
                    "`input_signature` must be given for a network that does "
                    "not declare its inputs, or call the model once before. "
                    "Received: input_signature=None"
                )
            input_signature = [self._symbols.value]
        drops = any(group.layout.drops for group in self._groups.value)
        tables = _tables_in(self._network.value)
        if format != "tf_saved_model":
            self._tables.all = tables  # the export of Keras finds them here
            if format in _CHECKS:
                self._check_random(format, drops)
            if format == "onnx":
                require_onnx()
            with _written_locally(path) as local:
                with unrolled_loops():
                    super().export(
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
            lambda inputs: self(_of_own_shape(inputs)),
            input_signature,
            **kwargs,
        )
        if drops:
            archive.add_endpoint(
                "serve_with_seed",
                lambda inputs, seed: self(_of_own_shape(inputs), seed=seed),
                [*input_signature, tf.TensorSpec((), tf.int32, name="seed")],
            )
        archive.write_out(
            str(path), verbose=True if verbose is None else verbose
        )

    def _check_random(self, format, drops):
        """Raises an error if a format lacks random numbers that are needed."""
        if drops:
            raise ValueError(
                f"`format={format!r}` has no random numbers for the masks of "
                'dropout. Use `format="tf_saved_model"`. '
                f"Received: a model with dropout, {self.name!r}"
            )
        if format == "litert" and self._options.link == MONTE_CARLO:
            raise ValueError(
                '`format="litert"` has no random numbers for '
                '`link="monte_carlo"`. Use `link=None`, which draws samples of '
                "the same Gaussian in advance. "
                f"Received: format={format!r}"
            )

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights, also into layers that compute with copies."""
        super().load_own_variables(store)
        if not self._owns_network:
            return  # the network of the user, which must not change
        network = self._network.value
        for group in self._groups.value:
            group.assign_to(network.variables)
        for layer in _keras.all_layers(network):
            # `Normalization` computes with tensors made of its variables.
            if isinstance(layer, keras.layers.Normalization):
                layer.finalize_state()

    def save_assets(self, dir_path: str) -> None:
        """Saves what layers keep outside of variables, such as vocabularies."""
        for folder, layer in self._layers_with_assets(dir_path):
            os.makedirs(folder, exist_ok=True)
            layer.save_assets(folder)
            state: dict[str, Any] = {}
            layer.save_own_variables(state)
            np.savez(os.path.join(folder, "state.npz"), **state)

    def load_assets(self, dir_path: str) -> None:
        """Loads what `save_assets` saved."""
        if not self._owns_network:
            return  # the network of the user, which must not change
        for folder, layer in self._layers_with_assets(dir_path):
            with np.load(os.path.join(folder, "state.npz")) as state:
                layer.load_own_variables(dict(state))
            layer.load_assets(folder)

    def _layers_with_assets(self, folder):
        """Yields a folder for each layer of the network that has assets."""
        layers = _keras.all_layers(self._network.value)
        with_assets = [
            layer for layer in layers if hasattr(layer, "save_assets")
        ]
        for number, layer in enumerate(with_assets):
            yield os.path.join(folder, f"network_{number}"), layer


@contextlib.contextmanager
def _written_locally(path):
    """Yields a local path, whose file is then copied to a remote path."""
    if not path.is_remote:
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, path.name)
        yield local
        # Without a pointer: other programs read the file.
        tf.io.gfile.copy(local, path, overwrite=True)


def _of_own_shape(inputs):
    """Returns the inputs, with a check of their shapes in the graph.

    A signature of a SavedModel does not check shapes.
    """
    return keras.tree.map_structure(
        lambda tensor: tf.ensure_shape(tensor, tensor.shape), inputs
    )


def _tables_in(network):
    """Returns the lookup tables of all layers."""
    return [
        found
        for found in tf.train.TrackableView(network).descendants()
        if isinstance(found, tf.saved_model.experimental.TrackableResource)
    ]


class Untracked:
    """Hides a value from Keras, which would save it with the model."""

    def __init__(self, value):
        self.value = value


def _check_closed_form(link, names):
    """Raises an error if a name has no closed form."""
    unknown = set(names) - set(IN_CLOSED_FORM.get(link, names))
    if unknown:
        raise ValueError(
            f"`outputs` with `link={link!r}` must be among "
            f"{list(IN_CLOSED_FORM[link])}, which need no samples. "
            f"Received: outputs={list(names)}"
        )
