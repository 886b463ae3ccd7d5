"""A Keras model that averages a network over posterior samples."""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.aliases import Data
from keras_bdl.arguments import as_list
from keras_bdl.arguments import check_choice
from keras_bdl.arguments import check_count
from keras_bdl.data.checked_inputs import check_model
from keras_bdl.memory import check_memory
from keras_bdl.posteriors import Posterior
from keras_bdl.prediction.averages import merged
from keras_bdl.prediction.averages import with_all_samples
from keras_bdl.prediction.network_average import AverageOptions
from keras_bdl.prediction.network_average import NetworkAverage
from keras_bdl.prediction.network_average import check_moments
from keras_bdl.prediction.posterior_draws import PosteriorDraws
from keras_bdl.prediction.posterior_draws import find_posterior
from keras_bdl.prediction.posterior_draws import is_linearized
from keras_bdl.prediction.quantities import quantities
from keras_bdl.prediction.reestimate_batch_norm import (
    optional_batch_norm_batches,
)
from keras_bdl.prediction.sample_stack import SampleStack
from keras_bdl.prediction.sample_stack import nbytes_of_samples
from keras_bdl.prediction.stateless_call import moved_on
from keras_bdl.prediction.stateless_call import seed_states

_STORED = (None, "float32", "bfloat16", "float16")


@keras.saving.register_keras_serializable(package="keras_bdl")
class PosteriorPredictive(keras.Model):
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
        model: A built Keras model.
        posterior: A `keras_bdl.posteriors.Posterior`. Defaults to `None`, as
            in `keras_bdl.predict`.
        samples: S. Defaults to `None`, as in `keras_bdl.predict`.
        seed: Selects the samples. Defaults to `0`.
        outputs: Names of attributes of `ClassificationPrediction` or
            `RegressionPrediction`, such as `"mean"`, `"entropy"`,
            `"mutual_information"`, `"stddev"`, `"samples"`. A single name
            in place of a tuple makes the call return that tensor alone, for
            `compile` and `evaluate` with an ordinary loss. Defaults to
            `("mean",)`.
        batch_norm_data: Training inputs on which BatchNorm statistics are
            estimated for every sample. Defaults to `None`.
        batch_norm_fraction: Fraction of `batch_norm_data` to use. Defaults to
            `1.0`.
        task: As in `keras_bdl.predict`. Defaults to `None`.
        from_logits: As in `keras_bdl.predict`. Defaults to `None`.
        moments: As in `keras_bdl.predict`. Defaults to `None`.
        linearized: As in `keras_bdl.predict`. Defaults to `None`.
        weights_dtype: Dtype in which the samples are stored: `"bfloat16"` and
            `"float16"` halve the memory. The model computes in the dtype of
            the network. Defaults to `None`, the dtype of the network.
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
        posterior = find_posterior(model, posterior)
        linearized = is_linearized(posterior, linearized)
        check_moments(moments)
        statistics = optional_batch_norm_batches(
            batch_norm_data, batch_norm_fraction
        )
        draws = PosteriorDraws(
            model,
            posterior,
            samples=samples,
            seed=seed,
            batch_norm_batches=statistics,
            linearized=linearized,
        )
        if moments is None and task is None:
            # A loss such as `keras_bdl.likelihoods.Gaussian` has the moments.
            moments = getattr(getattr(model, "loss", None), "moments", None)
        check_memory(
            f"{len(draws)} samples of `model`",
            nbytes_of_samples(draws),
            "Pass fewer `samples`, or use `keras_bdl.predict`, which can draw "
            "one sample at a time.",
        )
        stacks = [
            SampleStack.of(draws, indices)
            for drops in (False, True)
            if (indices := draws.indices(drops))
        ]
        self._set_up(
            model,
            AverageOptions(task, from_logits, moments, linearized=linearized),
            [(len(stack), stack.positions, stack.drops) for stack in stacks],
            outputs=outputs,
            weights_dtype=weights_dtype,
            name=name,
        )
        for group, stack in zip(self._groups.value, stacks, strict=True):
            group.assign(stack, draws.seeds_of_batch(stack.indices, 0))
        if getattr(model, "inputs", None):
            # Describes the outputs while the model is compiled as it is now.
            single = isinstance(model, keras.Sequential)
            inputs = model.inputs[0] if single else model.input
            self(keras.tree.map_structure(_symbol, inputs))

    def _set_up(self, model, options, groups, *, outputs, weights_dtype, name):
        """Makes the weights, without values."""
        super().__init__(name=name)
        self.autocast = False  # the network casts its inputs
        self.supports_jit = getattr(model, "supports_jit", True)
        self._network = _Untracked(model)
        self._options = options
        self._output_names = _checked_names(outputs)
        self._weights_dtype = weights_dtype
        self._symbols: Any = None
        self._owns_network = False
        self._groups = _Untracked(
            [
                _Group(self, position, *group)
                for position, group in enumerate(groups)
            ]
        )
        self.built = True

    @property
    def num_samples(self) -> int:
        """S, the number of posterior samples."""
        return sum(group.count for group in self._groups.value)

    def call(self, inputs, seed=None, training=None):
        """Returns the averages of the outputs over all samples."""
        del training  # the network runs as in inference
        if self._symbols is None:
            self._symbols = _Untracked(
                keras.tree.map_structure(_symbol, inputs)
            )
        total: Any = None
        done = 0
        for group in self._groups.value:
            part = group.average(inputs, 0 if seed is None else seed)
            if done:
                part = [
                    merged(*pair, done, group.count)
                    for pair in zip(total, part, strict=True)
                ]
            total = part
            done += group.count
        return self._named(total, self._groups.value[0].network)

    def _named(self, averages, network):
        names = self._output_names
        single = isinstance(names, str)
        found = [
            quantities(
                (names,) if single else names, average, output.likelihood
            )
            for average, output in zip(averages, network.outputs, strict=True)
        ]
        if len(found) == 1:
            return found[0][names] if single else found[0]
        prefixes = _names_of(network.structure, self._network.value)
        if single:
            return {
                prefix: values[names]
                for prefix, values in zip(prefixes, found, strict=True)
            }
        return {
            f"{prefix}_{name}": value
            for prefix, values in zip(prefixes, found, strict=True)
            for name, value in values.items()
        }

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
        drops = any(group.drops for group in self._groups.value)
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

    def get_config(self) -> dict[str, Any]:
        """Returns the network without its compilation, and all options."""
        if self._symbols is None:
            raise ValueError(
                "This model must know its inputs before it is saved. Call it "
                f"on a batch once. Received: model={self.name!r}"
            )
        network = keras.saving.serialize_keras_object(self._network.value)
        network.pop("compile_config", None)
        outputs = self._groups.value[0].network.outputs
        known = self._options.moments is None
        return {
            "name": self.name,
            "network": network,
            "inputs": keras.saving.serialize_keras_object(self._symbols.value),
            "groups": [group.spec for group in self._groups.value],
            "outputs": self._output_names,
            "weights_dtype": self._weights_dtype,
            "linearized": self._options.linearized,
            "task": [o.likelihood.task for o in outputs] if known else None,
            "from_logits": [o.likelihood.from_logits for o in outputs]
            if known
            else None,
            "moments": _serialized(self._options.moments),
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
        self._set_up(
            network,
            AverageOptions(
                config["task"],
                config["from_logits"],
                _deserialized(config["moments"], custom_objects),
                linearized=config["linearized"],
            ),
            config["groups"],
            outputs=config["outputs"],
            weights_dtype=config["weights_dtype"],
            name=config["name"],
        )
        self._owns_network = True
        self(symbols)
        return self


class _Untracked:
    """Hides a value from Keras, which would save it with the model."""

    def __init__(self, value):
        self.value = value


class _Group:
    """Samples that agree in whether dropout is on, as weights of a model.

    Args:
        owner: The `PosteriorPredictive`.
        number: Number of the group.
        count: Number of samples.
        positions: Positions in `model.variables` of what differs between them.
        drops: Whether dropout is on.
    """

    def __init__(self, owner, number, count, positions, drops):
        self.count, self.drops = count, drops
        self.positions = tuple(positions)
        self.spec = [count, list(positions), drops]
        options = dataclasses.replace(
            owner._options,
            positions=self.positions,
            drops=drops,
            keep_samples="samples" in _as_tuple(owner._output_names),
        )
        model = owner._network.value
        self.network = NetworkAverage(
            lambda: model, options, uses_xla=lambda: bool(owner.jit_compile)
        )
        variables = model.variables

        def add(kind, i, shape, dtype):
            return owner.add_weight(
                name=f"group_{number}_{kind}_{i}",
                shape=shape,
                dtype=dtype,
                initializer="zeros",
                trainable=False,
                autocast=False,
            )

        def stored(variable):
            floating = keras.backend.is_float_dtype(variable.dtype)
            return (floating and owner._weights_dtype) or variable.dtype

        fixed = self.network.fixed_values(list(enumerate(variables)))
        self._fixed = [add("fixed", i, v.shape, v.dtype) for i, v in fixed]
        self._samples = [
            add("sample", i, (count, *variables[i].shape), stored(variables[i]))
            for i in self.positions
        ]
        self._seeds = [
            add("seed", i, (count, *variables[i].shape), variables[i].dtype)
            for i in seed_states(model)
        ]

    def assign(self, stack, seeds):
        """Sets the weights to samples."""
        values = [
            *self.network.fixed_values(stack.values),
            *stack.stacked,
            *seeds,
        ]
        weights = [*self._fixed, *self._samples, *self._seeds]
        for weight, value in zip(weights, values, strict=True):
            weight.assign(ops.cast(value, weight.dtype))

    def assign_to(self, variables):
        """Sets the variables that no sample changes."""
        fixed = self.network.fixed_values(variables)
        for variable, weight in zip(fixed, self._fixed, strict=True):
            variable.assign(weight.value)

    def average(self, inputs, seed):
        """Returns the average of each output over the samples."""
        seeds = [moved_on(state, 0, seed) for state in _read(self._seeds)]
        found = self.network(
            inputs, _read(self._fixed), [*_read(self._samples), *seeds]
        )
        if self.network.options.moments is None:
            # The network may be compiled with another loss later.
            likelihoods = [output.likelihood for output in self.network.outputs]
            self.network.options = dataclasses.replace(
                self.network.options,
                task=[one.task for one in likelihoods],
                from_logits=[one.from_logits for one in likelihoods],
            )
        return [with_all_samples(average, self.count) for average in found]


def _read(weights):
    return [tf.convert_to_tensor(weight.value) for weight in weights]


def _checked_names(outputs):
    if isinstance(outputs, str):
        return outputs
    outputs = as_list("outputs", outputs, "names")
    if not outputs or not all(isinstance(name, str) for name in outputs):
        raise ValueError(
            "`outputs` must be one name, or at least one name in a list. "
            f"Received: outputs={outputs!r}"
        )
    return outputs


def _as_tuple(names):
    return (names,) if isinstance(names, str) else tuple(names)


def _names_of(structure, model):
    """Returns a name for each of several outputs."""
    if isinstance(structure, dict):
        paths = keras.tree.flatten_with_path(
            keras.tree.map_structure(lambda _: 0, structure)
        )
        return ["_".join(map(str, path)) for path, _ in paths]
    names = getattr(model, "output_names", None)
    count = len(keras.tree.flatten(structure))
    return names or [f"output_{i}" for i in range(count)]


def _symbol(tensor):
    """Returns a symbolic input with an open batch axis."""
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    return keras.KerasTensor((None, *tensor.shape[1:]), dtype)


def _example(symbol):
    """Returns one example of zeros."""
    return ops.zeros([size or 1 for size in symbol.shape], symbol.dtype)


def _serialized(moments):
    """Returns `moments` for a config; a likelihood is stored as a whole."""
    if moments is None:
        return None
    owner = getattr(moments, "__self__", None)
    if owner is not None:
        return {"of": keras.saving.serialize_keras_object(owner)}
    return {"function": keras.saving.serialize_keras_object(moments)}


def _deserialized(config, custom_objects):
    if config is None:
        return None
    if "of" in config:
        owner = keras.saving.deserialize_keras_object(
            config["of"], custom_objects
        )
        return owner.moments
    return keras.saving.deserialize_keras_object(
        config["function"], custom_objects
    )
