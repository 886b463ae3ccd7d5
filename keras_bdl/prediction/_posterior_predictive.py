"""A Keras model that averages a network over posterior samples."""

import dataclasses
import functools
import os
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Data
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_seed
from keras_bdl._data._batches import is_arrays
from keras_bdl._data._batches import preprocessed
from keras_bdl._data._batches import preprocesses
from keras_bdl._memory import check_memory
from keras_bdl._saving._checked_paths import CheckedPaths
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._averages import IN_CLOSED_FORM
from keras_bdl.prediction._averages import as_names
from keras_bdl.prediction._averages import checked_names
from keras_bdl.prediction._averages import merged
from keras_bdl.prediction._averages import named_quantities
from keras_bdl.prediction._export import export
from keras_bdl.prediction._network_average import AverageOptions
from keras_bdl.prediction._options import DEFAULT_OPTIONS
from keras_bdl.prediction._options import PredictOptions
from keras_bdl.prediction._options import check_options
from keras_bdl.prediction._outputs import names_of_outputs
from keras_bdl.prediction._posterior_samples import SampleStack
from keras_bdl.prediction._posterior_samples import chosen_draws
from keras_bdl.prediction._posterior_samples import nbytes_of_samples
from keras_bdl.prediction._sample_group import GroupLayout
from keras_bdl.prediction._sample_group import SampleGroup
from keras_bdl.prediction._stateless_call import check_model

_STORED = (None, "float32", "bfloat16", "float16")


@keras.saving.register_keras_serializable(package="keras_bdl")
class PosteriorPredictive(CheckedPaths, keras.Model):
    """A network averaged over posterior samples, as one ordinary Keras model.

    Use this model to serve predictions: it is saved, exported and called like
    any other model. It holds S samples of the weights and computes

        p(y | x) = 1/S sum_s p(y | x, w_s)                                (1)

    in one graph. The part of the network before the first uncertain weight runs
    once. The samples are copies: later training of the network does not change
    this model. A process that loads the exported model needs no `keras_bdl`.

    A call returns a dictionary of tensors, one for each name in `outputs`. A
    network with several outputs gives names such as `"digit_mean"`, with the
    name of the output in front.

    Args:
        model: A built Keras model. With a preprocessor, as in KerasHub,
            `predict` and `evaluate` apply it, and a call or an export takes
            preprocessed inputs.
        posterior: A `keras_bdl.extend.Posterior`. Defaults to `None`, as
            in `keras_bdl.predict`.
        samples: S. Defaults to `None`, as in `keras_bdl.predict`.
        seed: Selects the samples. Defaults to `0`.
        outputs: Names of attributes of `ClassificationPrediction` or
            `RegressionPrediction`, such as `"mean"`, `"entropy"`,
            `"mutual_information"`, `"stddev"`, `"samples"`. A single name
            in place of a tuple makes the call return that tensor alone, for
            `compile` and `evaluate` with an ordinary loss. The tensor then has
            the shape of the network's output: for a binary output the
            probability of class 1, where a tuple gives both classes. The mean
            of a classifier holds probabilities, so the loss must have
            `from_logits=False`. Defaults to `("mean",)`.
        batch_norm_data: Training inputs on which BatchNorm statistics are
            estimated for every sample. Defaults to `None`.
        options: As in `keras_bdl.predict`, without `noise_stddev`, `tolerance`,
            `steps` and `stack_bytes`. Defaults to `None`.
        weights_dtype: Dtype in which the samples are stored: `"bfloat16"` and
            `"float16"` halve the memory, and the size of a SavedModel. The
            model computes in the dtype of the network. Defaults to `None`,
            the dtype of the network.
        name: Name of the model. Defaults to `None`.

    Call arguments:
        inputs: The inputs of the network.
        seed: An integer or a scalar tensor that selects other dropout masks.
            Defaults to `None`, `0`. Without dropout, it has no effect.

    Example:

    ```python
    predictive = keras_bdl.PosteriorPredictive(
        model, posterior, samples=5, outputs=("mean", "mutual_information")
    )
    predictive(x_test)["mutual_information"]
    ```
    """

    _groups: Any
    _symbols: Any

    def __init__(
        self,
        model: keras.Model,
        posterior: Posterior | None = None,
        *,
        samples: int | None = None,
        seed: int = 0,
        outputs: str | Sequence[str] = ("mean",),
        batch_norm_data: Data | None = None,
        options: PredictOptions | None = None,
        weights_dtype: str | None = None,
        name: str | None = None,
    ):
        check_model(model)
        check_choice("weights_dtype", weights_dtype, _STORED)
        if samples is not None:
            check_count("samples", samples)
        if not model.built:
            raise ValueError(
                "`model` must be built. Call it on a batch of inputs first. "
                f"Received: model={model.name!r}"
            )
        if options is None:
            options = DEFAULT_OPTIONS
        else:
            check_options(options)
            _check_unused(options)
        draws = chosen_draws(
            model,
            posterior,
            samples=samples,
            seed=seed,
            batch_norm_data=batch_norm_data,
            options=options,
        )
        check_memory(
            f"{len(draws)} samples of `model`",
            2 * nbytes_of_samples(draws),  # the draws, and the weights
            "Pass fewer `samples`, or use `keras_bdl.predict`, which can draw "
            "one sample at a time.",
        )
        stacks = [
            SampleStack.of(draws, indices)
            for drops in (False, True)
            if (indices := draws.indices(drops))
        ]
        self._hold(
            model,
            AverageOptions.of(options, linearized=draws.linearized),
            [GroupLayout.of(stack, draws) for stack in stacks],
            outputs=outputs,
            weights_dtype=weights_dtype,
            name=name,
        )
        for group, stack in zip(self._groups.value, stacks, strict=True):
            group.assign(stack, draws.seeds_of_batch(stack.indices, 0))
        if getattr(model, "inputs", None):
            # Describes the outputs while the model is compiled as it is now.
            self._symbols = Untracked(_symbols(_declared_inputs(model)))
            try:
                self(_symbols(self._symbols.value))  # copies, changed by a call
            except ValueError as error:
                raise _first(error) from None

    def _hold(
        self,
        model: keras.Model,
        options: AverageOptions,
        layouts: Sequence[GroupLayout],
        *,
        outputs: Any,
        weights_dtype: str | None,
        name: str | None,
    ) -> None:
        """Makes the weights, which have no values yet."""
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
        self._symbols = None
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

    def fit(self, *args: Any, **kwargs: Any) -> None:
        """Raises an error, because the samples are fixed."""
        raise ValueError(
            "A `PosteriorPredictive` holds finished samples and cannot be "
            "trained. Train the network and make a new `PosteriorPredictive`. "
            f"Received: a call of `fit` of {self.name!r}"
        )

    def call(self, inputs: Any, seed: Any = None, training: Any = None) -> Any:
        """Returns the averages of the outputs over all samples."""
        del training  # the network runs as in inference
        if seed is None:
            seed = 0
        elif not ops.is_tensor(seed):
            check_seed(seed)
        if self._symbols is None:
            self._symbols = Untracked(_symbols(inputs))
        total: Any = None
        done = 0
        for group in self._groups.value:
            part = group.average(inputs, seed)
            count = group.layout.count
            if done:
                part = [
                    merged(*pair, done, count)
                    for pair in zip(total, part, strict=True)
                ]
            total = part
            done += count
        first = self._groups.value[0].average_of_network
        return named_quantities(
            self._output_names,
            total,
            first.outputs,
            names_of_outputs(first.structure, self._network.value),
        )

    @functools.wraps(keras.Model.predict)
    def predict(
        self, x: Data, batch_size: int | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Predicts, with the preprocessor of the network if there is one."""
        network = self._network.value
        x, batch_size = preprocessed(network, x, batch_size)
        return super().predict(x, batch_size, *args, **kwargs)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(
        self,
        x: Data = None,
        y: Any = None,
        batch_size: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Evaluates, with the preprocessor of the network if there is one."""
        network = self._network.value
        if preprocesses(network):
            weight = kwargs.pop("sample_weight", None)
            if is_arrays(x):
                x = keras.utils.pack_x_y_sample_weight(x, y, weight)
            x, batch_size = preprocessed(network, x, batch_size, labelled=True)
            y = None
            if is_arrays(x):  # preprocessed already
                x, y, weight = keras.utils.unpack_x_y_sample_weight(x)
                kwargs["sample_weight"] = weight
        return super().evaluate(x, y, batch_size, *args, **kwargs)

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
        export(
            self,
            filepath,
            format=format,
            verbose=verbose,
            input_signature=input_signature,
            **kwargs,
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

    def _layers_with_assets(self, folder: str) -> Iterator[tuple[str, Any]]:
        """Yields a folder for each layer of the network that has assets."""
        layers = _keras.all_layers(self._network.value)
        with_assets = [
            layer for layer in layers if hasattr(layer, "save_assets")
        ]
        for number, layer in enumerate(with_assets):
            yield os.path.join(folder, f"network_{number}"), layer

    def get_config(self) -> dict[str, Any]:
        """Returns the network without its compilation, and all options."""
        if self._symbols is None:
            raise ValueError(
                "This model must know its inputs before it is saved. Call it "
                f"on a batch once. Received: model={self.name!r}"
            )
        network = keras.saving.serialize_keras_object(self._network.value)
        network.pop("compile_config", None)
        return {
            "name": self.name,
            "network": network,
            "inputs": keras.saving.serialize_keras_object(self._symbols.value),
            "groups": [
                dataclasses.asdict(group.layout) for group in self._groups.value
            ],
            "outputs": self._output_names,
            "weights_dtype": self._weights_dtype,
            # The first call has replaced the loss by what it means.
            "options": self._groups.value[0].options.get_config(),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None
    ) -> "PosteriorPredictive":
        """Returns a model whose weights have no values yet."""
        config = dict(config)
        network = keras.saving.deserialize_keras_object(
            config["network"], custom_objects
        )
        symbols = keras.saving.deserialize_keras_object(config["inputs"])
        if not network.built:
            network(keras.tree.map_structure(_example, symbols))
        self = cls.__new__(cls)
        self._hold(
            network,
            AverageOptions.from_config(config["options"], custom_objects),
            [GroupLayout.from_config(group) for group in config["groups"]],
            outputs=config["outputs"],
            weights_dtype=config["weights_dtype"],
            name=config["name"],
        )
        self._owns_network = True
        if getattr(network, "inputs", None):
            symbols = _declared_inputs(network)  # with their names
        self._symbols = Untracked(_symbols(symbols))
        return self


def _first(error: Any) -> Any:
    """Returns the error that Keras has caught and raised in other words."""
    first = error.__context__
    return _first(first) if isinstance(first, ValueError) else error


def _declared_inputs(model: keras.Model) -> Any:
    """Returns the inputs of a functional or sequential model."""
    sequential = isinstance(model, keras.Sequential)
    return model.inputs[0] if sequential else model.input


def _symbols(inputs: Any) -> Any:
    """Returns symbolic inputs with an open batch axis and stable names.

    The names become those of the inputs of an exported model: `"inputs"` for
    one tensor, otherwise the keys of a dictionary or the names of the user.
    """
    found = [
        keras.KerasTensor(
            (None, *tensor.shape[1:]),
            keras.backend.standardize_dtype(tensor.dtype),
            name=_name(path, tensor),
        )
        for path, tensor in keras.tree.flatten_with_path(inputs)
    ]
    return keras.tree.pack_sequence_as(inputs, found)


def _name(path: tuple, tensor: Any) -> str:
    given = tensor.name if keras.utils.is_keras_tensor(tensor) else None
    # Names that Keras has chosen: the second kind belongs to loaded models.
    if given and not given.startswith(("keras_tensor", "input_layer")):
        return given
    if path and all(isinstance(key, str) for key in path):
        return "_".join(path)
    return "_".join(["inputs", *map(str, path)])


def _example(symbol: keras.KerasTensor) -> keras.KerasTensor:
    """Returns one example of zeros."""
    return ops.zeros([size or 1 for size in symbol.shape], symbol.dtype)


class Untracked:
    """Hides a value from Keras, which would save it with the model."""

    def __init__(self, value: Any):
        self.value = value


def _check_closed_form(link: Any, names: Sequence[str]) -> None:
    """Raises an error if a name has no closed form."""
    unknown = set(names) - set(IN_CLOSED_FORM.get(link, names))
    if unknown:
        raise ValueError(
            f"`outputs` with `link={link!r}` must be among "
            f"{list(IN_CLOSED_FORM[link])}, which need no samples. "
            f"Received: outputs={list(names)}"
        )


def _check_unused(options: PredictOptions) -> None:
    """Raises an error for options that only `keras_bdl.predict` has."""
    for name in ("noise_stddev", "tolerance", "steps", "stack_bytes"):
        value = getattr(options, name)
        if np.any(value != getattr(DEFAULT_OPTIONS, name)):
            raise ValueError(
                f"`options` of `PosteriorPredictive` must not have `{name}`, "
                "which only `keras_bdl.predict` uses. "
                f"Received: {name}={value!r}"
            )
