"""Base class of the objectives."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl import priors
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import as_names
from keras_bdl._arguments import check_number
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._inherited_arguments import InheritedArguments
from keras_bdl._keras import loss_scale
from keras_bdl.curvature._weight_scope import current_values
from keras_bdl.distribute._replicas import for_all_replicas
from keras_bdl.distribute._replicas import replica_weight
from keras_bdl.distribute._replicas import weighted
from keras_bdl.layers._find_variational_layers import sampling_layers
from keras_bdl.models._checks import check_optimizer
from keras_bdl.models._trainer import build_optimizer
from keras_bdl.objectives._batch_outcome import BatchPass
from keras_bdl.objectives._batch_outcome import Outcome
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import check_any_weight
from keras_bdl.posteriors._covered_weights import excluded_variables


class Objective(InheritedArguments, ShowsArguments, keras.losses.Loss):
    """Base of the objectives of `keras_bdl.Model.compile(objective=...)`.

    Derive from this class for a new objective. With N examples and temperature
    tau, the optimizer of the model minimises

        loss = data term + (tau / N) complexity + regularizers            (1)

    A subclass computes both terms. `look` returns the data term, in nats per
    example. `complexity` returns the complexity, in nats for the whole data
    set. The same optimizer trains the variables of the objective. Keras saves
    these variables with the model, but `model.weights` leaves them out.

    The class is a `keras.losses.Loss`, so that Keras saves its variables.
    Passing an objective as `loss` to `compile` raises an error, since an
    objective needs the model.

    Args:
        prior: p, a prior of `keras_bdl.priors`, or anything that
            `keras_bdl.priors.get` takes. Defaults to `None`: `Normal(1.0)`.
            (Samplers take `None` for a flat prior.)
        temperature: tau, float or schedule. tau multiplies the complexity
            alone. Defaults to `1.0`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables that have neither prior nor noise. Defaults to
            `("BatchNormalization",)`.
    """

    # The weights of the model in training, or `None` before.
    trained_weights: TrainedWeights | None = None

    def __init__(
        self,
        prior: PriorLike = None,
        *,
        temperature: FloatOrSchedule = 1.0,
        dataset_size: int | None = None,
        exclude_from_inference: str | Sequence[str] = ("BatchNormalization",),
    ):
        super().__init__()
        if not callable(temperature):
            check_number("temperature", temperature, above=0.0)
        given = priors.get(prior)
        self.prior = priors.Normal(1.0) if given is None else given
        self.temperature = temperature
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)
        self.exclude_from_inference = as_names(exclude_from_inference)

    @property
    def trainable_variables(self) -> list:
        """The variables that train together with the weights of the model."""
        return []

    @property
    def built(self) -> bool:
        """Whether all variables exist."""
        return True

    def build(self, model: keras.Model) -> None:
        """Creates the variables for the trainable weights of a model.

        Args:
            model: A built `keras_bdl.Model`.
        """

    def look(
        self, forward: BatchPass, values: list, own: list
    ) -> list[Outcome]:
        """Returns the data term at the given weights.

        The training step calls this method under a gradient tape that watches
        all given tensors.

        Args:
            forward: The batch.
            values: Tensors for the weights of the model.
            own: Tensors for `trainable_variables`.

        Returns:
            One `Outcome` for each sample.
        """
        raise NotImplementedError

    def complexity(self, forward: BatchPass, values: list, own: list) -> Any:
        """Returns the complexity of (1), in nats.

        Args:
            forward: The batch.
            values: Tensors for the weights of the model.
            own: Tensors for `trainable_variables`.
        """
        raise NotImplementedError

    def bayesian_train_step(self, model: keras.Model, data: Any) -> dict:
        """Trains on one batch with the gradient of (1)."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self.prepare(model, x)
        variables = model.trainable_variables
        excluded = excluded_variables(model, self.exclude_from_inference)
        self.check(model, [v for v in variables if id(v) not in excluded])
        scale = loss_scale(model.optimizer)
        forward = BatchPass(
            model, (x, y, sample_weight), excluded=excluded, scale=scale
        )
        values = current_values(variables)
        own = current_values(self.trainable_variables)

        outcomes, of_data = self.gradients(forward, values, own)
        of_data = weighted(of_data, replica_weight(data))
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        weight = self.temperature_now(model) / self.dataset_size.value()
        with tf.GradientTape() as tape:
            tape.watch([*values, *own])
            complexity = self.complexity(forward, values, own)
            share = weight * complexity / replicas
            scaled = share if scale is None else share * scale
        of_complexity = tape.gradient(
            scaled, [*values, *own], unconnected_gradients="zero"
        )
        gradients = [a + b for a, b in zip(of_data, of_complexity, strict=True)]
        model.optimizer.apply(
            for_all_replicas(model.optimizer, gradients),
            [*variables, *self.trainable_variables],
        )
        self.update_metrics(model, x, outcomes=outcomes, complexity=complexity)
        losses = [one.loss + share for one in outcomes]  # (1)
        y_pred = [one.y_pred for one in outcomes]
        return model.finish_draws(losses, x, y, y_pred, sample_weight)

    def gradients(
        self, forward: BatchPass, values: list, own: list
    ) -> tuple[list[Outcome], list]:
        """Returns the result of `look` and the gradients of its mean loss.

        Args:
            forward: The batch.
            values: Tensors for the weights of the model.
            own: Tensors for `trainable_variables`.
        """
        with tf.GradientTape() as tape:
            tape.watch([*values, *own])
            outcomes = self.look(forward, values, own)
            losses = [outcome.loss for outcome in outcomes]
            loss = ops.mean(ops.stack(losses))
            if forward.scale is not None:
                loss = loss * forward.scale
        gradients = tape.gradient(
            loss, [*values, *own], unconnected_gradients="zero"
        )
        return outcomes, [tf.convert_to_tensor(g) for g in gradients]

    def update_metrics(
        self,
        model: keras.Model,
        x: Any,
        *,
        outcomes: list[Outcome],
        complexity: Any,
    ) -> None:
        """Updates metrics of the model.

        Args:
            model: The `keras_bdl.Model`.
            x: The inputs.
            outcomes: The result of `look`.
            complexity: The complexity of the step.
        """

    def prepare(self, model: keras.Model, x: Any = None) -> None:
        """Creates all missing variables of model and optimizer.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs that builds the model. Defaults to `None`.
        """
        if not model.built:
            if x is None:
                raise ValueError(
                    f"`{type(self).__name__}` needs a built model. Call the "
                    "model on a batch, or train it. "
                    f"Received: model={model.name!r}, which has no weights"
                )
            _keras.call_with_training(model, x, training=False)
        build_optimizer(model)

    def check(self, model: keras.Model, inferred: list) -> None:
        """Raises an error or warns if the objective cannot train the model.

        The training step calls this method before the forward pass.

        Args:
            model: The `keras_bdl.Model`.
            inferred: The variables that have a prior.
        """
        owner = type(self).__name__
        check_any_weight(owner, inferred)
        check_optimizer(owner, model)
        layers = [layer.name for layer in sampling_layers(model)]
        if layers:
            raise ValueError(
                f"`{owner}` needs ordinary layers, and some layers have "
                "distributions of their own. Train the model without "
                f"`objective`. Received: layers {layers}"
            )

    def temperature_now(self, model: keras.Model) -> tf.Tensor:
        """Returns the temperature tau at this iteration of the optimizer."""
        if callable(self.temperature):
            now = self.temperature(model.optimizer.iterations)
            return ops.cast(now, "float32")
        return ops.convert_to_tensor(self.temperature, "float32")

    def call(self, y_true, y_pred):
        """Raises an error: an objective needs the model, not only outputs."""
        name = type(self).__name__
        raise ValueError(
            f"`{name}` is not a loss of outputs alone. Compile a "
            f"`keras_bdl.Model` with `loss` and `objective={name}(...)`. "
            f"Received: loss={name}"
        )

    def save_own_variables(self, store: Any) -> None:
        """Saves the variables to the file of a model."""
        for i, variable in enumerate(self.trainable_variables):
            store[str(i)] = variable

    def load_own_variables(self, store: Any) -> None:
        """Loads the variables that `save_own_variables` saved."""
        variables = self.trainable_variables
        if len(store) != len(variables):
            raise ValueError(
                f"The file must hold {len(variables)} variables of "
                f"`{type(self).__name__}`. Load it into the objective that was "
                f"saved. Received: {len(store)} variables"
            )
        for i, variable in enumerate(variables):
            variable.assign(store[str(i)])

    def get_config(self):
        """Returns every constructor argument."""
        serialize = keras.saving.serialize_keras_object
        return {
            "prior": serialize(self.prior),
            "temperature": serialize(self.temperature),
            "dataset_size": self.dataset_size.given,
            "exclude_from_inference": list(self.exclude_from_inference),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Returns the objective that `get_config` described."""
        revived = {
            name: keras.saving.deserialize_keras_object(
                value, custom_objects=custom_objects
            )
            if isinstance(value, dict) and "class_name" in value
            else value
            for name, value in config.items()
        }
        return cls(**revived)
