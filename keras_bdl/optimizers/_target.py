"""The target of optimizers and objectives that learn a posterior."""

from typing import Any
from typing import TypedDict

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._arguments import check_learning_rate
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._random._seeds import NoiseSeed
from keras_bdl.curvature._capture import WeightScope
from keras_bdl.posteriors._posterior import Posterior


class Tempered:
    """A mixin of what has a temperature, a number or a schedule, and N."""

    dataset_size: DatasetSize
    temperature: FloatOrSchedule

    def temperature_now(self, optimizer: Any = None) -> Any:
        """Returns the temperature at this step of an optimizer, or of self."""
        if callable(self.temperature):
            owner: Any = self if optimizer is None else optimizer
            return ops.cast(self.temperature(owner.iterations), "float32")
        return self.temperature

    def target_config(self) -> dict:
        """Returns the config of N and the temperature."""
        return {
            "dataset_size": self.dataset_size.given,
            "temperature": keras.saving.serialize_keras_object(
                self.temperature
            ),
        }


def revived(config: dict, custom_objects: Any = None) -> dict:
    """Returns a config with the objects that its entries describe."""
    return {
        name: keras.saving.deserialize_keras_object(
            value, custom_objects=custom_objects
        )
        if isinstance(value, dict) and "class_name" in value
        else value
        for name, value in config.items()
    }


class FittedGaussian:
    """A mixin of what fits a Gaussian over the weights of a model."""

    # Whether training draws samples. If not, `predict` uses the means.
    trained_under_draws: bool

    def fitted_weights(
        self, model: keras.Model, x: Any = None, *, evaluating: bool = False
    ) -> list:
        """Returns the weights that were trained, also if they are frozen now.

        Raises without a training step. `evaluating` turns the error into a
        warning, since a model may be evaluated before training.
        """
        raise NotImplementedError

    def evaluation_sample(
        self, model: keras.Model, variables: list, draw: int
    ) -> list:
        """Returns one sample of the weights, the same in all calls."""
        raise NotImplementedError

    def fitted_gaussian(
        self, model: keras.Model, variables: list, **options: Any
    ) -> Any:
        """Returns the Gaussian over the given weights."""
        raise NotImplementedError

    def call_with_draw(self, model: keras.Model, x: Any, draw: int) -> Any:
        """Returns the outputs at one sample, the same sample for all batches.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Index of the sample.
        """
        variables = self.fitted_weights(model, x, evaluating=True)
        values = self.evaluation_sample(model, variables, draw)
        scope = WeightScope(variables, values)
        scope.collect_losses = False  # the layers keep their losses
        with scope:
            return _keras.call_with_training(model, x, training=False)

    def posterior(self, model: keras.Model) -> Posterior:
        """Returns the posterior that was learned.

        Args:
            model: The trained model.
        """
        variables = self.fitted_weights(model)
        posterior = self.fitted_gaussian(
            model,
            variables,
            names=[v.name for v in variables],
            trained_under_draws=self.trained_under_draws,
        )
        return posterior.beside_frozen_weights_of(model, variables)


class NoOptions(TypedDict, total=False):
    """No options: a type checker refuses all, the constructor explains why."""


class PosteriorOptimizer(Tempered, NoiseSeed, keras.optimizers.Optimizer):
    """Base of all optimizers that target a posterior.

    `refused` holds options of Keras that change the target, with the advice
    that the error adds to "Leave them out".
    """

    refused: tuple[str, ...] = (
        "weight_decay",
        "clipnorm",
        "clipvalue",
        "global_clipnorm",
        "use_ema",
    )
    # Every config of Keras has these two. They do nothing without `use_ema`.
    unused = ("ema_momentum", "ema_overwrite_frequency")
    advice = ""

    def __init__(
        self,
        learning_rate: FloatOrSchedule,
        dataset_size: int | None,
        *,
        temperature: FloatOrSchedule,
        seed: int | None,
        **options: Any,
    ):
        owner = type(self).__name__
        changing = sorted(k for k in self.refused if options.pop(k, None))
        if changing:
            raise ValueError(
                f"`{owner}` targets the posterior, and these options would "
                f"change the target. Leave them out{self.advice}. "
                f"Received: {changing}"
            )
        check_learning_rate(learning_rate)
        super().__init__(
            learning_rate=learning_rate,
            **{k: v for k, v in options.items() if k not in self.unused},
        )
        self.choose_seed(seed)
        self.temperature = temperature
        self.dataset_size = DatasetSize(
            dataset_size, owner, on_count=self.counted
        )

    def counted(self) -> None:
        """Does what needs N: `fit` has counted the examples."""

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        config = super().get_config()
        for name in (*self.refused, *self.unused):
            config.pop(name, None)
        return {**config, **self.target_config(), "seed": self.seed}

    @classmethod
    def from_config(cls, config: dict, custom_objects: Any = None) -> Any:
        """Returns the optimizer that `get_config` described."""
        return super().from_config(
            revived(config, custom_objects), custom_objects=custom_objects
        )
