"""Protocols between `keras_bdl.Model` and optimizers, objectives, layers.

`keras_bdl.Model` checks which of these protocols an optimizer, objective or
layer implements. An object that implements a protocol takes over that part of
the model's work.
"""

from typing import Any
from typing import Protocol
from typing import runtime_checkable

import keras

from keras_bdl._aliases import FloatOrSchedule

__all__ = [
    "DrawsFunctions",
    "KnowsModel",
    "OwnsPosterior",
    "OwnsTrainStep",
    "OwnsVariables",
    "SamplesWeights",
    "TargetsPosterior",
]


@runtime_checkable
class OwnsTrainStep(Protocol):
    """Protocol of an optimizer or objective that runs the training step."""

    def bayesian_train_step(self, model: keras.Model, data: Any) -> dict:
        """Trains on one batch.

        The model calls this method instead of `keras.Model.train_step`, inside
        the compiled step and on each replica.

        Args:
            model: The `keras_bdl.Model`. Its `train_samples` is the number
                of posterior samples; `finish_step` or `finish_draws` updates
                the metrics.
            data: A batch that `keras.utils.unpack_x_y_sample_weight` unpacks.

        Returns:
            The logs, as `model.finish_step` returns them.
        """


@runtime_checkable
class KnowsModel(Protocol):
    """Protocol of an optimizer or objective whose state depends on layers."""

    def attach(self, model: keras.Model) -> None:
        """Receives the model during `compile`.

        `keras_bdl.Model.compile` calls this method.

        Args:
            model: The `keras_bdl.Model`, whose layers may not be built yet.
        """


@runtime_checkable
class DrawsFunctions(Protocol):
    """Protocol of an optimizer or objective that predicts with samples."""

    def call_with_draw(self, model: keras.Model, x: Any, draw: int) -> Any:
        """Returns `model(x, training=False)` at one posterior sample.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Index of the sample.
        """


@runtime_checkable
class TargetsPosterior(Protocol):
    """Protocol of an optimizer that samples or fits a posterior.

    An objective of `keras_bdl.objectives` refuses such an optimizer, because
    both define the target of the training.

    Attributes:
        dataset_size: `keras_bdl._data._dataset_size.DatasetSize`, N.
        temperature: T of the tempered posterior, float or schedule.
    """

    dataset_size: Any
    temperature: FloatOrSchedule


@runtime_checkable
class OwnsPosterior(Protocol):
    """Protocol of an optimizer or objective that holds a posterior."""

    def posterior(self, model: keras.Model) -> Any:
        """Returns the learned `keras_bdl.extend.Posterior`.

        Args:
            model: The `keras_bdl.Model`.
        """


@runtime_checkable
class OwnsVariables(Protocol):
    """Protocol of an objective with trainable variables of its own.

    The optimizer trains them together with the weights of the model.

    Attributes:
        trainable_variables: The list of these variables.
        built: Whether the variables exist.
    """

    trainable_variables: list
    built: bool

    def build(self, model: keras.Model) -> None:
        """Creates the variables.

        Args:
            model: A built `keras_bdl.Model`.
        """


@runtime_checkable
class SamplesWeights(Protocol):
    """Protocol of a layer with a distribution over its own weights.

    With `training=False`, the layer computes with the mean of the
    distribution, which one or more variables hold. Setting these variables to
    a sample makes the layer compute with the sample, without a new trace.
    """

    def sample_weights(self, seed: int) -> list:
        """Returns pairs `(variable, value)`, always of the same variables.

        Args:
            seed: Selects the sample. The values depend only on the seed and
                the variables of the layer.
        """
