"""Objectives: losses of a model and its weights, at given weights.

`BatchPass` runs the model at given weights, `Objective` trains with the result,
and `MAP` is the simplest case.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl import priors
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import as_names
from keras_bdl._arguments import check_number
from keras_bdl._backend import first_tensor
from keras_bdl._backend import grad
from keras_bdl._backend import num_replicas
from keras_bdl._backend import tensor
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._data._dataset_size import count_positions
from keras_bdl._keras import loss_scale
from keras_bdl._models._checks import check_optimizer
from keras_bdl._models._trainer import build_optimizer
from keras_bdl.curvature._capture import WeightScope
from keras_bdl.curvature._capture import current_values
from keras_bdl.curvature._captured_pass import Losses
from keras_bdl.distribute._replicas import for_all_replicas
from keras_bdl.distribute._replicas import replica_weight
from keras_bdl.distribute._replicas import weighted
from keras_bdl.layers._variational import sampling_layers
from keras_bdl.optimizers._target import Tempered
from keras_bdl.optimizers._target import revived
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import check_any_weight
from keras_bdl.posteriors._covered_weights import excluded_variables
from keras_bdl.priors._tfp_distribution import get_prior


@dataclasses.dataclass
class Outcome:
    """Loss and outputs of one forward pass.

    `loss` has the penalties and is divided by the number of replicas. `nll` is
    the mean negative log-likelihood of the examples of this replica.
    """

    loss: Any
    nll: Any
    y_pred: Any

    def plus(self, term: Any) -> "Outcome":
        """Returns an outcome whose mean loss has one more term."""
        loss = self.loss + term / num_replicas()
        return Outcome(loss, self.nll + term, self.y_pred)


class BatchPass:
    """Runs a model on one batch with given tensors for weights.

    `excluded` has the `id` of each variable without prior and noise; `inferred`
    are the positions of the others in `model.trainable_variables`. `scale` is
    the factor of the loss for half precision, or `None`. With `state`, pairs of
    a variable and a tensor, assignments of layers and metrics change
    `new_state` instead of the variables. `assigned` are the variables that
    forward passes have assigned, and `SampledVI` sets `noises`.
    """

    def __init__(
        self,
        model: keras.Model,
        data: tuple,
        *,
        excluded: set[int],
        scale: Any,
        state: list | None = None,
    ):
        self.model = model
        self.data = data
        self.excluded = excluded
        self.scale = scale
        self.variables = model.trainable_variables
        self.assigned: list[keras.Variable] = []
        self.noises: list = []
        self.inferred = [
            i for i, v in enumerate(self.variables) if id(v) not in excluded
        ]
        first = first_tensor(data[0])
        self.examples = first.shape[0] or ops.shape(first)[0]
        self._state = state
        self.new_state: list | None = None

    def observations(self, y_pred: Any) -> Any:
        """Returns the number of observations, see `keras_bdl.Model.compile`."""
        losses = Losses(self.model)
        labels = losses.labels(y_pred)
        if self.model.observations == EXAMPLES:
            return labels * self.examples
        counted = losses.counted(self.data[1])
        return labels * count_positions(y_pred, counted)

    @property
    def gradient_scale(self) -> Any:
        """Factor of `nll` before its gradient is computed, or `None`.

        The factor is `sqrt(scale)`. When this gradient is differentiated
        again, the remaining `sqrt(scale)` scales that second derivative.
        """
        return None if self.scale is None else ops.sqrt(self.scale)

    def __call__(self, values: list) -> Outcome:
        """Returns the `Outcome` of one forward pass at the given weights."""
        x, y, sample_weight = self.data
        scope = WeightScope(
            self.variables, values, pure=self._state is not None
        )
        for update in self._state or ():
            scope.add_update(update)
        scope.on_assign = self._note
        with scope:
            y_pred = _keras.call_with_training(self.model, x, training=True)
            loss = _keras.compute_loss(
                self.model, x, y, y_pred, sample_weight, training=True
            )
            penalties = [ops.sum(one) for one in self.model.losses]
        if self._state is not None:
            self.new_state = [
                tensor(scope.get_current_value(v)) for v, _ in self._state
            ]
        return self.outcome(loss, y_pred, penalties)

    def outcome(self, loss: Any, y_pred: Any, penalties: list) -> Outcome:
        """Returns the `Outcome` of a forward pass.

        Keras has divided the loss of this replica by the number of replicas,
        but not the penalties: regularizers and other losses without data.
        """
        loss = ops.cast(loss, "float32")
        nll = loss * num_replicas()
        if penalties:
            nll = nll - sum(ops.cast(one, "float32") for one in penalties)
        return Outcome(loss, nll, y_pred)

    def with_gradient(self, values: list) -> tuple[Outcome, list]:
        """Returns the outcome and the gradient of its `nll`."""
        scale = self.gradient_scale

        def scaled(*values: Any) -> tuple[Any, Outcome]:
            outcome = self(list(values))
            return (
                outcome.nll if scale is None else outcome.nll * scale,
                outcome,
            )

        gradients, outcome = grad(scaled, values, has_aux=True)
        if scale is not None:
            gradients = [g / ops.cast(scale, g.dtype) for g in gradients]
        return outcome, gradients

    def _note(self, variable: keras.Variable) -> None:
        if all(variable is not other for other in self.assigned):
            self.assigned.append(variable)


class Objective(Tempered, ShowsArguments, keras.losses.Loss):
    """Base of the objectives of `keras_bdl.Model.compile(objective=...)`.

    Derive from this class for a new objective. With N examples and temperature
    tau, the optimizer of the model minimises

        loss = data term + (tau / N) complexity + regularizers            (1)

    A subclass computes both terms. `data_term` returns the first, in nats per
    example. `complexity` returns the second, in nats for the whole data set.
    The same optimizer trains the variables of the objective. Keras saves these
    variables with the model, but `model.weights` leaves them out.

    The class is a `keras.losses.Loss`, so that Keras saves its variables.
    Passing an objective as `loss` to `compile` raises an error, since an
    objective needs the model.

    Args:
        prior: p, a prior of `keras_bdl.priors`, or a distribution of
            TensorFlow Probability. Defaults to `None`: `Normal(1.0)`.
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
        given = get_prior(prior)
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
        """Creates the variables for the trainable weights of a built model."""

    def data_term(
        self, forward: BatchPass, values: list, own: list
    ) -> list[Outcome]:
        """Returns the data term at the given weights: a list, one per sample.

        The training step calls this method under a gradient tape that watches
        all given tensors: `values` for the weights of the model, `own` for
        `trainable_variables`.
        """
        raise NotImplementedError

    def complexity(self, forward: BatchPass, values: list, own: list) -> Any:
        """Returns the complexity of (1), in nats, as `data_term`."""
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
        weight = (
            self.temperature_now(model.optimizer) / self.dataset_size.value()
        )

        def weighted_complexity(*tensors: Any) -> tuple[Any, tuple]:
            complexity = self.complexity(forward, *_apart(tensors, len(values)))
            share = weight * complexity / num_replicas()
            scaled = share if scale is None else share * scale
            return scaled, (complexity, share)

        of_complexity, (complexity, share) = grad(
            weighted_complexity, [*values, *own], has_aux=True
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
        """Returns the result of `data_term` and gradients of its mean loss."""

        def mean_loss(*tensors: Any) -> tuple[Any, list[Outcome]]:
            outcomes = self.data_term(forward, *_apart(tensors, len(values)))
            loss = ops.mean(ops.stack([outcome.loss for outcome in outcomes]))
            if forward.scale is not None:
                loss = loss * forward.scale
            return loss, outcomes

        gradients, outcomes = grad(mean_loss, [*values, *own], has_aux=True)
        return outcomes, gradients

    def update_metrics(
        self,
        model: keras.Model,
        x: Any,
        *,
        outcomes: list[Outcome],
        complexity: Any,
    ) -> None:
        """Updates metrics of the model after a step."""

    def prepare(self, model: keras.Model, x: Any = None) -> None:
        """Creates all missing variables of model and optimizer."""
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

        The training step calls this method before the forward pass. `inferred`
        are the variables that have a prior.
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

    def call(self, y_true: Any, y_pred: Any) -> Any:
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

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {
            **self.target_config(),
            "prior": keras.saving.serialize_keras_object(self.prior),
            "exclude_from_inference": list(self.exclude_from_inference),
        }

    @classmethod
    def from_config(
        cls, config: dict, custom_objects: dict | None = None
    ) -> "Objective":
        """Returns the objective that `get_config` described."""
        return cls(**revived(config, custom_objects))


@keras.saving.register_keras_serializable(package="keras_bdl")
class MAP(Objective):
    """The mode of the posterior: the loss plus a prior.

    Use MAP as the baseline of `TaylorVI` and `SampledVI`, which equal MAP at
    zero variance. The loss is

        loss = nll(w) - (tau / N) log p(w)                                (1)

    with nll the mean negative log-likelihood, N the number of examples and
    tau the temperature, which multiplies the prior alone. At `tau = 1` the
    minimum of (1) is the mode of the posterior.

    MAP has no posterior: `keras_bdl.predict` uses the network itself.

    Args:
        prior, temperature, dataset_size: As in `keras_bdl.extend.Objective`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables without a prior. Defaults to `("BatchNormalization",)`.

    Example:

    ```python
    prior = keras_bdl.priors.HeNormal()
    model.compile("adam", loss, objective=keras_bdl.objectives.MAP(prior))
    model.fit(x, y, verbose=0)
    ```
    """

    def data_term(
        self, forward: BatchPass, values: list, own: list
    ) -> list[Outcome]:
        """Returns the outcome of the batch."""
        return [forward(values)]

    def complexity(self, forward: BatchPass, values: list, own: list) -> Any:
        """Returns `-log p(w)`."""
        log_priors = [
            ops.sum(self.prior.log_prob(ops.cast(values[i], "float32")))
            for i in forward.inferred
        ]
        return -ops.sum(ops.stack(log_priors))

    def check(self, model: keras.Model, inferred: list) -> None:
        """Also raises an error for `train_samples`: MAP draws no samples."""
        super().check(model, inferred)
        if model.train_samples != 1:
            raise ValueError(
                "`MAP` draws no samples. Compile without `train_samples`. "
                f"Received: train_samples={model.train_samples}"
            )


def _apart(tensors: tuple, count: int) -> tuple[list, list]:
    """Returns the values of the weights, and those of the objective."""
    return list(tensors[:count]), list(tensors[count:])
