"""What `keras_bdl.Model` asks of an optimizer or an objective.

The model knows no method by name. An optimizer or objective that has one of
the methods below is handed that part of the work.
"""

from typing import Protocol
from typing import runtime_checkable


@runtime_checkable
class OwnsTrainStep(Protocol):
    """Needs more than the gradient: it runs the whole training step."""

    def bayesian_train_step(self, model, data):
        """Trains on one batch.

        Runs where `keras.Model.train_step` runs: in the graph, in a replica.

        Args:
            model: The `keras_bdl.Model`. Its `train_samples` is the number
                of Monte-Carlo draws; `finish_step` or `finish_draws` updates
                the metrics.
            data: What `keras.utils.unpack_x_y_sample_weight` unpacks.

        Returns:
            The logs, as `model.finish_step` returns them.
        """


@runtime_checkable
class KnowsModel(Protocol):
    """Has a state that depends on the layers, and not on variables alone."""

    def attach(self, model):
        """Hears of the model, perhaps not built yet, in `compile`.

        Args:
            model: The `keras_bdl.Model`.
        """


@runtime_checkable
class DrawsFunctions(Protocol):
    """Has a posterior of its own to evaluate and predict with."""

    def call_with_draw(self, model, x, draw):
        """Returns `model(x, training=False)` under one posterior draw.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Integer, which draw of this batch.
        """


@runtime_checkable
class OwnsPosterior(Protocol):
    """Has learned the posterior: part of it is no weight of the model."""

    def posterior(self, model):
        """Returns the `keras_bdl.posteriors.Posterior` that was learned.

        Args:
            model: The `keras_bdl.Model`.
        """


@runtime_checkable
class OwnsVariables(Protocol):
    """Has variables that the optimizer trains beside those of the model.

    Attributes:
        trainable_variables: A list of them.
        built: Whether they are there.
    """

    trainable_variables: list
    built: bool

    def build(self, model):
        """Creates them.

        Args:
            model: A built `keras_bdl.Model`.
        """


@runtime_checkable
class SamplesWeights(Protocol):
    """A layer that holds a distribution over its own weights.

    Without training it computes with the mean of that distribution, which is
    a variable (or several). A draw is what these variables are set to: the
    layer then *is* the draw, and nothing is traced again.
    """

    def sample_weights(self, seed: int) -> list:
        """Returns pairs `(variable, value)`, always of the same variables.

        Args:
            seed: Selects the draw; the values depend on nothing else but the
                variables of the layer.
        """
