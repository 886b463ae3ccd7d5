"""A Keras model that averages a network over posterior samples."""

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_seed
from keras_bdl._data._batches import is_arrays
from keras_bdl._data._checked_inputs import check_model
from keras_bdl._data._preprocessed import preprocessed
from keras_bdl._data._preprocessed import preprocesses
from keras_bdl._memory import check_memory
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._average_options import AverageOptions
from keras_bdl.prediction._averages import merged
from keras_bdl.prediction._chosen_draws import chosen_draws
from keras_bdl.prediction._described_output import names_of_outputs
from keras_bdl.prediction._quantities import named_quantities
from keras_bdl.prediction._sample_group import GroupLayout
from keras_bdl.prediction._sample_model import SampleModel
from keras_bdl.prediction._sample_model import Untracked
from keras_bdl.prediction._sample_stack import SampleStack
from keras_bdl.prediction._sample_stack import nbytes_of_samples

_STORED = (None, "float32", "bfloat16", "float16")


@keras.saving.register_keras_serializable(package="keras_bdl")
class PosteriorPredictive(SampleModel):
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
        batch_norm_fraction: Fraction of `batch_norm_data` to use. Defaults to
            `1.0`.
        task: As in `keras_bdl.predict`. Defaults to `None`.
        from_logits: As in `keras_bdl.predict`. Defaults to `None`.
        moments: As in `keras_bdl.predict`. Defaults to `None`.
        linearized: As in `keras_bdl.predict`. Defaults to `None`.
        link: As in `keras_bdl.predict`. Defaults to `None`.
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

    def __init__(
        self,
        model: keras.Model,
        posterior: Posterior | None = None,
        *,
        samples: int | None = None,
        seed: int = 0,
        outputs: str | Sequence[str] = ("mean",),
        batch_norm_data: Data | None = None,
        batch_norm_fraction: float = 1.0,
        task: Any = None,
        from_logits: Any = None,
        moments: Callable | None = None,
        linearized: bool | None = None,
        link: str | None = None,
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
        options = AverageOptions(
            task=task,
            from_logits=from_logits,
            moments=moments,
            link=link,
        )
        draws = chosen_draws(
            model,
            posterior,
            samples=samples,
            seed=seed,
            batch_norm_data=batch_norm_data,
            batch_norm_fraction=batch_norm_fraction,
            linearized=linearized,
            link=link,
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
        super().__init__(
            model,
            dataclasses.replace(options, linearized=draws.linearized),
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

    def call(self, inputs, seed=None, training=None):
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
    def predict(self, x, batch_size=None, *args, **kwargs):
        """Predicts, with the preprocessor of the network if there is one."""
        network = self._network.value
        x, batch_size = preprocessed(network, x, batch_size)
        return super().predict(x, batch_size, *args, **kwargs)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, x=None, y=None, batch_size=None, *args, **kwargs):
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
    def from_config(cls, config, custom_objects=None):
        """Returns a model whose weights have no values yet."""
        config = dict(config)
        network = keras.saving.deserialize_keras_object(
            config["network"], custom_objects
        )
        symbols = keras.saving.deserialize_keras_object(config["inputs"])
        if not network.built:
            network(keras.tree.map_structure(_example, symbols))
        self = cls.__new__(cls)
        SampleModel.__init__(
            self,
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


def _first(error):
    """Returns the error that Keras has caught and raised in other words."""
    first = error.__context__
    return _first(first) if isinstance(first, ValueError) else error


def _declared_inputs(model):
    """Returns the inputs of a functional or sequential model."""
    sequential = isinstance(model, keras.Sequential)
    return model.inputs[0] if sequential else model.input


def _symbols(inputs):
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


def _name(path, tensor):
    given = tensor.name if keras.utils.is_keras_tensor(tensor) else None
    # Names that Keras has chosen: the second kind belongs to loaded models.
    if given and not given.startswith(("keras_tensor", "input_layer")):
        return given
    if path and all(isinstance(key, str) for key in path):
        return "_".join(path)
    return "_".join(["inputs", *map(str, path)])


def _example(symbol):
    """Returns one example of zeros."""
    return ops.zeros([size or 1 for size in symbol.shape], symbol.dtype)
