"""Posterior samples as the weights of a Keras model."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._backend import is_tracing
from keras_bdl.posteriors._covered_weights import made_trainable
from keras_bdl.prediction._averages import with_all_samples
from keras_bdl.prediction._network_average import AverageOptions
from keras_bdl.prediction._network_average import NetworkAverage
from keras_bdl.prediction._options import MONTE_CARLO
from keras_bdl.prediction._posterior_samples import PosteriorDraws
from keras_bdl.prediction._posterior_samples import SampleStack
from keras_bdl.prediction._stateless_call import in_a_graph
from keras_bdl.prediction._stateless_call import moved_on
from keras_bdl.prediction._stateless_call import seed_states


@dataclasses.dataclass(frozen=True)
class GroupLayout:
    """The shapes and positions of one group of samples, as a file holds them.

    The attributes are those of `AverageOptions`, the number of samples, and
    with a link the shapes of the arrays of the covariance.
    """

    count: int
    positions: tuple[int, ...]
    drops: bool
    blocks: tuple[tuple, ...] = ()
    shapes: tuple[tuple, ...] = ()
    covered: tuple[int, ...] = ()

    @classmethod
    def of(cls, stack: SampleStack, draws: PosteriorDraws) -> "GroupLayout":
        """Returns the layout of a stack of samples."""
        return cls(
            len(stack),
            stack.positions,
            stack.drops,
            draws.layout,
            tuple(a.shape for a in draws.arrays),
            draws.covered,
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "GroupLayout":
        """Returns the layout whose attributes a file holds as lists."""
        return cls(**{name: _as_tuples(v) for name, v in config.items()})


class SampleGroup:
    """Samples that agree in whether dropout is on, as weights of `owner`."""

    def __init__(
        self,
        owner: keras.Model,
        network: keras.Model,
        number: int,
        layout: GroupLayout,
        *,
        options: AverageOptions,
        weights_dtype: str | None,
    ):
        self.layout = layout
        options = dataclasses.replace(
            options,
            positions=layout.positions,
            drops=layout.drops,
            blocks=layout.blocks,
            covered=layout.covered,
        )
        self.average_of_network = NetworkAverage(
            lambda: network, options, uses_xla=lambda: bool(owner.jit_compile)
        )
        self._graph = in_a_graph(network, self._average)
        variables = network.variables
        weights = {id(v) for v in made_trainable(network)}

        def add(kind: Any, i: Any, shape: Any, dtype: Any) -> Any:
            return owner.add_weight(
                name=f"group_{number}_{kind}_{i}",
                shape=shape,
                dtype=dtype,
                initializer="zeros",
                trainable=False,
                autocast=False,
            )

        def stored(variable: Any) -> Any:
            # BatchNorm statistics are small, and may not fit into float16.
            is_weight = id(variable) in weights  # also if frozen now
            return (is_weight and weights_dtype) or variable.dtype

        fixed = self.average_of_network.fixed_values(list(enumerate(variables)))
        self._of_network = [add("fixed", i, v.shape, v.dtype) for i, v in fixed]
        self._fixed = self._of_network + [
            # float16 has no variances below 6e-8.
            add("covariance", i, shape, "float32")
            for i, shape in enumerate(layout.shapes)
        ]
        count = layout.count
        self._samples = [
            add(
                "sample",
                i,
                (count, *variables[i].shape),
                stored(variables[i]),
            )
            for i in layout.positions
        ]
        if options.link == MONTE_CARLO:
            self._samples.append(add("key", 0, (count, 2), "int32"))
        self._seeds = [
            add("seed", i, (count, *variables[i].shape), variables[i].dtype)
            for i in seed_states(network)
        ]

    @property
    def options(self) -> AverageOptions:
        """The `AverageOptions`, with the meaning of the outputs if known."""
        return self.average_of_network.options

    def assign(self, stack: SampleStack, seeds: list) -> None:
        """Sets the weights to samples."""
        values = [
            *self.average_of_network.fixed_values(stack.values),
            *stack.stacked,
            *seeds,
        ]
        weights = [*self._fixed, *self._samples, *self._seeds]
        for weight, value in zip(weights, values, strict=True):
            weight.assign(ops.cast(value, weight.dtype))

    def assign_to(self, variables: list) -> None:
        """Sets the variables that no sample changes."""
        fixed = self.average_of_network.fixed_values(variables)
        for variable, weight in zip(fixed, self._of_network, strict=True):
            variable.assign(weight.value)

    def average(self, inputs: Any, seed: Any) -> list[dict[str, Any]]:
        """Returns the average of each output over the samples."""
        if not is_tracing():
            # One graph: eagerly, the whole network would run for each sample.
            if isinstance(seed, int):
                seed = ops.convert_to_tensor(seed, "int64")
            return self._graph(inputs, seed)
        return self._average(inputs, seed)

    def _average(self, inputs: Any, seed: Any) -> list[dict[str, Any]]:
        network = self.average_of_network
        seeds = [moved_on(state, 0, seed) for state in _read(self._seeds)]
        found = network(
            inputs, _read(self._fixed), [*_read(self._samples), *seeds]
        )
        if network.options.moments is None:
            # The network may be compiled with another loss later.
            likelihoods = [output.likelihood for output in network.outputs]
            network.options = dataclasses.replace(
                network.options,
                task=[one.task for one in likelihoods],
                from_logits=[one.from_logits for one in likelihoods],
                noise=[one.noise for one in likelihoods],
            )
        return [
            with_all_samples(average, self.layout.count) for average in found
        ]


def _read(weights: Sequence) -> list:
    return [ops.convert_to_tensor(weight.value) for weight in weights]


def _as_tuples(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_as_tuples, value))
    return value
