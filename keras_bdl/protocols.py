"""Protocols between `keras_bdl.Model` and optimizers, objectives, layers.

`keras_bdl.Model` checks for these protocols instead of names of methods. An
optimizer, objective or layer that implements one of them takes over that part
of the work.
"""

from typing import Any
from typing import Protocol
from typing import runtime_checkable

import keras

from keras_bdl.aliases import FloatOrSchedule

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
    """Implemented by a method that runs the whole training step itself."""

    def bayesian_train_step(self, model: keras.Model, data: Any) -> dict:
        """Trains on one batch.

        The model calls it in the place of `keras.Model.train_step`: in the
        graph, in a replica.

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
    """Implemented by a method whose state depends on layers."""

    def attach(self, model: keras.Model) -> None:
        """Called by `compile` with the model, which may not be built yet.

        Args:
            model: The `keras_bdl.Model`.
        """


@runtime_checkable
class DrawsFunctions(Protocol):
    """Implemented by a method that predicts with its own samples."""

    def call_with_draw(self, model: keras.Model, x: Any, draw: int) -> Any:
        """Returns `model(x, training=False)` at one posterior sample.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Index of the sample.
        """


@runtime_checkable
class TargetsPosterior(Protocol):
    """Implemented by an optimizer that samples or fits a posterior.

    An objective of `keras_bdl.objectives` refuses such an optimizer, since
    both define what is trained.

    Attributes:
        dataset_size: `keras_bdl.data.dataset_size.DatasetSize`, N.
        temperature: T of the tempered posterior, float or schedule.
    """

    dataset_size: Any
    temperature: FloatOrSchedule


@runtime_checkable
class OwnsPosterior(Protocol):
    """Implemented by a method that holds the learned posterior."""

    def posterior(self, model: keras.Model) -> Any:
        """Returns the learned `keras_bdl.posteriors.Posterior`.

        Args:
            model: The `keras_bdl.Model`.
        """


@runtime_checkable
class OwnsVariables(Protocol):
    """Implemented by an objective with trainable variables of its own.

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
    """Implemented by a layer with a distribution over its own weights.

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
