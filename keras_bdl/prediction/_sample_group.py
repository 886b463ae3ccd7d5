"""Posterior samples as the weights of a Keras model."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.posteriors._covered_weights import made_trainable
from keras_bdl.prediction._average_options import MONTE_CARLO
from keras_bdl.prediction._average_options import AverageOptions
from keras_bdl.prediction._averages import with_all_samples
from keras_bdl.prediction._network_average import NetworkAverage
from keras_bdl.prediction._posterior_draws import PosteriorDraws
from keras_bdl.prediction._sample_stack import SampleStack
from keras_bdl.prediction._stateless_call import moved_on
from keras_bdl.prediction._stateless_call import seed_states
from keras_bdl.prediction._traced import in_a_graph


@dataclasses.dataclass(frozen=True)
class GroupLayout:
    """The shapes and positions of one group of samples.

    A file can hold all attributes.

    Attributes:
        count: Number of samples.
        positions: Positions in `model.variables` of what differs between them.
        drops: Whether dropout is on.
        blocks: With a link, the layout of the `CovarianceBlocks`.
        shapes: With a link, the shapes of the arrays of the blocks.
        covered: With a link, the positions in `model.variables` of the
            variables that the blocks count. Older files have none: the blocks
            count the trainable variables.
    """

    count: int
    positions: tuple[int, ...]
    drops: bool
    blocks: tuple[tuple, ...] = ()
    shapes: tuple[tuple, ...] = ()
    covered: tuple[int, ...] = ()

    @classmethod
    def of(cls, stack: SampleStack, draws: PosteriorDraws) -> "GroupLayout":
        """Returns the layout of a stack of samples.

        Args:
            stack: The samples.
            draws: The `PosteriorDraws` that made them.
        """
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
        """Returns the layout whose attributes a file holds as lists.

        Args:
            config: The attributes by name.
        """
        return cls(**{name: _as_tuples(v) for name, v in config.items()})


class SampleGroup:
    """Samples that agree in whether dropout is on, as weights of a model.

    Args:
        owner: The Keras model that gets the weights.
        network: The Keras model that is averaged.
        number: Number of the group.
        layout: The `GroupLayout`.
        options: The `AverageOptions` that all groups share.
        weights_dtype: Dtype in which the samples are stored, or `None`.

    Attributes:
        layout: The `GroupLayout`.
        average_of_network: The `NetworkAverage`.
    """

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

    def assign(self, stack: SampleStack, seeds: list[tf.Tensor]) -> None:
        """Sets the weights to samples.

        Args:
            stack: The samples.
            seeds: For each seed generator of the network, a tensor with a
                state for each sample.
        """
        values = [
            *self.average_of_network.fixed_values(stack.values),
            *stack.stacked,
            *seeds,
        ]
        weights = [*self._fixed, *self._samples, *self._seeds]
        for weight, value in zip(weights, values, strict=True):
            weight.assign(ops.cast(value, weight.dtype))

    def assign_to(self, variables: list) -> None:
        """Sets the variables that no sample changes.

        Args:
            variables: The variables of the network.
        """
        fixed = self.average_of_network.fixed_values(variables)
        for variable, weight in zip(fixed, self._of_network, strict=True):
            variable.assign(weight.value)

    def average(self, inputs: Any, seed: Any) -> list[dict[str, Any]]:
        """Returns the average of each output over the samples.

        Args:
            inputs: A batch of nested tensors.
            seed: Selects other dropout masks, an integer or a scalar tensor.
        """
        if tf.executing_eagerly():
            # One graph: eagerly, the whole network would run for each sample.
            seed = tf.constant(seed, "int64") if isinstance(seed, int) else seed
            return self._graph(inputs, seed)
        return self._average(inputs, seed)

    def _average(self, inputs, seed):
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


def _read(weights):
    return [tf.convert_to_tensor(weight.value) for weight in weights]


def _as_tuples(value):
    if isinstance(value, (list, tuple)):
        return tuple(map(_as_tuples, value))
    return value
