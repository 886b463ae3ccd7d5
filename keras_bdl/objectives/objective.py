"""What the objectives have in common."""

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl import priors
from keras_bdl.arguments import ShowsArguments
from keras_bdl.arguments import check_number
from keras_bdl.curvature.weight_scope import current_values
from keras_bdl.data.dataset_size import DatasetSize
from keras_bdl.distribute.replica_gradients import for_all_replicas
from keras_bdl.distribute.replicas import replica_weight
from keras_bdl.distribute.replicas import weighted
from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.loss_scaling import loss_scale
from keras_bdl.models.build import build_optimizer
from keras_bdl.objectives.batch_outcome import Forward
from keras_bdl.optimizers.sampler import Sampler
from keras_bdl.optimizers.variational_optimizer import VariationalOptimizer
from keras_bdl.posteriors.covered_weights import check_any_weight
from keras_bdl.posteriors.covered_weights import excluded_variables


def check_optimizer(owner, model):
    """Raises an error if the optimizer would minimise something else.

    Args:
        owner: Name of the objective.
        model: A compiled model.
    """
    optimizer = inner_optimizer(model)
    name = type(optimizer).__name__
    if isinstance(optimizer, (Sampler, VariationalOptimizer)):
        raise ValueError(
            f"`{owner}` is minimised by an optimizer that only optimizes, such "
            f'as "adam", and `{name}` finds a posterior itself: leave one of '
            f"both out. Received: optimizer={name}"
        )
    changing = [
        option
        for option in ("weight_decay", "use_ema")
        if getattr(optimizer, option, None)
    ]
    if changing:
        raise ValueError(
            f"`{owner}` has a `prior`, and its variances fit the weights as "
            f"they are: leave {changing} out of the optimizer. "
            f"Received: optimizer={name} with {changing}"
        )


class Objective(ShowsArguments, keras.losses.Loss):
    """Base of what `compile(objective=...)` puts in the place of the loss.

    With N examples, temperature tau and the weights w of the model,

        loss = data term + (tau / N) complexity + regularizers            (1)

    is minimised by whatever optimizer the model has. A subclass says what the
    data term and the complexity are, in nats for an example and for the whole
    data. Where it has variables of its own, they are trained by the same
    optimizer, and saved with the model, of which they are no weights.

    It is a `keras.losses.Loss` for Keras to save its variables; as `loss` it
    does not work, since it needs the model.

    Args:
        prior: One of `keras_bdl.priors`, or `None`: `Normal(1.0)`.
        temperature: tau, a float or a schedule of it.
        dataset_size: N, the number of training examples, or `None`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables without prior and noise.
    """

    def __init__(
        self, prior, temperature, dataset_size, exclude_from_inference
    ):
        super().__init__()
        if not callable(temperature):
            check_number("temperature", temperature, above=0.0)
        if isinstance(exclude_from_inference, str):
            exclude_from_inference = (exclude_from_inference,)
        given = priors.get(prior)
        self.prior = priors.Normal(1.0) if given is None else given
        self.temperature = temperature
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)
        self.exclude_from_inference = tuple(exclude_from_inference)

    @property
    def trainable_variables(self):
        """What the optimizer trains beside the weights of the model."""
        return []

    @property
    def built(self):
        """Whether there is no variable to make."""
        return True

    def build(self, model):
        """Creates the variables, for the trainable weights of a model.

        Args:
            model: A built `keras_bdl.Model`.
        """

    def look(self, forward, values, own):
        """Returns the data term at given weights.

        Runs under a tape that watches all of them.

        Args:
            forward: A `Forward`, the batch.
            values: Tensors for the weights of the model.
            own: Tensors for `trainable_variables`.

        Returns:
            A list of an `Outcome` for each draw.
        """
        raise NotImplementedError

    def complexity(self, forward, values, own):
        """Returns what (1) calls so, in nats.

        Args:
            forward: See `look`, as all others.
            values: See there.
            own: See there.
        """
        raise NotImplementedError

    def bayesian_train_step(self, model, data):
        """Trains on one batch by (1)."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self.prepare(model, x)
        variables = model.trainable_variables
        excluded = excluded_variables(model, self.exclude_from_inference)
        self.check(model, [v for v in variables if id(v) not in excluded])
        scale = loss_scale(model.optimizer)
        forward = Forward(model, x, y, sample_weight, excluded, scale)
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
        self.tell(model, x, outcomes, complexity)
        losses = [one.loss + share for one in outcomes]  # (1)
        y_pred = [one.y_pred for one in outcomes]
        return model.finish_draws(losses, x, y, y_pred, sample_weight)

    def gradients(self, forward, values, own):
        """Returns what `look` does, and the gradients of its mean loss.

        Args:
            forward: See `look`, as all others.
            values: See there.
            own: See there.
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

    def tell(self, model, x, outcomes, complexity):
        """Updates metrics of the model.

        Args:
            model: The `keras_bdl.Model`.
            x: The inputs.
            outcomes: What `look` returned.
            complexity: That of the step.
        """

    def prepare(self, model, x=None):
        """Makes all variables that are not there yet.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs, if there is one. Defaults to `None`.
        """
        if not model.built:
            if x is None:
                raise ValueError(
                    f"`model` must be built before `{type(self).__name__}` can "
                    "say anything of its weights: call it on a batch, or train "
                    f"it. Received: model={model.name!r}, which has no weights"
                )
            model._call_for(x, training=False)
        build_optimizer(model)

    def check(self, model, inferred):
        """Raises an error, or warns, before the step is traced.

        Args:
            model: The `keras_bdl.Model`.
            inferred: The variables that have a prior.
        """
        owner = type(self).__name__
        check_any_weight(owner, inferred)
        check_optimizer(owner, model)
        layers = [
            layer.name
            for layer in _keras.all_layers(model)
            if hasattr(type(layer), "kl_divergence")
        ]
        if layers:
            raise ValueError(
                f"`{owner}` is for ordinary layers, and some have "
                "distributions of their own: train the model without "
                f"`objective`. Received: layers {layers}"
            )

    def temperature_now(self, model):
        """Returns tau at this iteration of the optimizer."""
        if callable(self.temperature):
            now = self.temperature(model.optimizer.iterations)
            return ops.cast(now, "float32")
        return ops.convert_to_tensor(self.temperature, "float32")

    def call(self, y_true, y_pred):
        """Raises an error: an objective needs more than outputs."""
        name = type(self).__name__
        raise ValueError(
            f"`{name}` is no loss of outputs: compile a `keras_bdl.Model` with "
            f"`loss` and `objective={name}(...)`. Received: loss={name}"
        )

    def save_own_variables(self, store):
        """Saves the variables; Keras calls it with the file of a model."""
        for i, variable in enumerate(self.trainable_variables):
            store[str(i)] = variable

    def load_own_variables(self, store):
        """Loads what `save_own_variables` saved."""
        variables = self.trainable_variables
        if len(store) != len(variables):
            raise ValueError(
                f"The file must hold the variables of `{type(self).__name__}`, "
                f"{len(variables)} of them. Received: {len(store)}"
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
