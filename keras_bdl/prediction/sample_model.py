"""A Keras model whose weights are posterior samples of a network."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.prediction.average_options import AverageOptions
from keras_bdl.prediction.quantities import IN_CLOSED_FORM
from keras_bdl.prediction.quantities import as_names
from keras_bdl.prediction.quantities import checked_names
from keras_bdl.prediction.sample_group import GroupLayout
from keras_bdl.prediction.sample_group import SampleGroup


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
        super().__init__(name=name)
        self.autocast = False  # the network casts its inputs
        self.supports_jit = getattr(model, "supports_jit", True)
        self._network = Untracked(model)
        self._output_names = checked_names(outputs)
        self._options = dataclasses.replace(
            options, keep_samples="samples" in as_names(outputs)
        )
        _check_closed_form(options.link, as_names(outputs))
        self._weights_dtype = weights_dtype
        self._symbols: Any = None
        self._owns_network = False
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
        second argument, an integer, selects the masks. All other formats use
        the masks of seed 0.

        Args:
            filepath: Path of the result.
            format: `"tf_saved_model"`, `"litert"` or `"onnx"`. Defaults to
                `"tf_saved_model"`.
            verbose: Whether to print a message. Defaults to `None`, as Keras.
            input_signature: Specifications of the inputs. Defaults to `None`,
                the inputs of the network.
            **kwargs: Further arguments of `keras.Model.export`.
        """
        if input_signature is None:
            if self._symbols is None:
                raise ValueError(
                    "`input_signature` must be given for a network that does "
                    "not declare its inputs, or call the model once before. "
                    "Received: input_signature=None"
                )
            input_signature = [self._symbols.value]
        drops = any(group.layout.drops for group in self._groups.value)
        if format != "tf_saved_model" or not drops:
            super().export(
                filepath,
                format=format,
                verbose=verbose,
                input_signature=input_signature,
                **kwargs,
            )
            return
        archive = keras.export.ExportArchive()
        archive.track(self)
        archive.add_endpoint("serve", self.__call__, input_signature)
        archive.add_endpoint(
            "serve_with_seed",
            lambda inputs, seed: self(inputs, seed=seed),
            [*input_signature, tf.TensorSpec((), tf.int32, name="seed")],
        )
        archive.write_out(
            filepath, verbose=True if verbose is None else verbose
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
