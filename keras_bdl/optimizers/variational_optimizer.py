"""Arguments of the optimizers that fit a distribution of the weights."""

import warnings

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.arguments import check_learning_rate
from keras_bdl.arguments import check_number
from keras_bdl.arguments import check_seed
from keras_bdl.data.dataset_size import DatasetSize
from keras_bdl.optimizers.keras_options import drop_options
from keras_bdl.optimizers.keras_options import refuse_options
from keras_bdl.posteriors.covered_weights import check_weights
from keras_bdl.posteriors.covered_weights import excluded_variables

# Tuples of tensors are no gradients, and are not divided by it.
_NO_USE = ("loss_scale_factor",)


class VariationalOptimizer(keras.optimizers.Optimizer):
    """Knows prior, temperature and N, and which weights are uncertain.

    With N examples, augmentation factor rho, temperature tau and prior
    `N(0, 1/delta)`, it minimises

        E_q[loss] + tau / (rho N) KL(q || prior)                          (1)

    which fits q to `p(w) exp(-rho N loss(w) / tau)`: the likelihood alone is
    tempered. The gradient of the prior on this scale is `delta_t w`,
    `delta_t = tau delta / (rho N)`.

    Args:
        learning_rate: Float or schedule.
        dataset_size: N, the number of training examples, or `None`.
        prior_precision: delta.
        temperature: tau, a float or a schedule of it.
        augmentation_factor: rho.
        exclude_from_inference: See `excluded_variables`; these weights have
            neither prior nor noise.
        seed: Seed of the noise.
        name: Name of the optimizer.
        kwargs: Options of Keras, none of which has a place here.
    """

    _excluded = frozenset()
    _examples = None

    def __init__(
        self,
        learning_rate,
        dataset_size,
        prior_precision,
        temperature,
        augmentation_factor,
        exclude_from_inference,
        seed,
        name,
        kwargs,
    ):
        refuse_options(
            type(self).__name__,
            kwargs,
            _NO_USE,
            ": the prior is `prior_precision`, and losses are scaled by "
            "`keras.optimizers.LossScaleOptimizer`",
        )
        check_learning_rate(learning_rate)
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        check_number("prior_precision", prior_precision, above=0.0)
        if not callable(temperature):
            check_number("temperature", temperature, above=0.0)
        check_number("augmentation_factor", augmentation_factor, above=0.0)
        check_seed(seed)
        if isinstance(exclude_from_inference, str):
            exclude_from_inference = (exclude_from_inference,)
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)
        self.prior_precision = prior_precision
        self.temperature = temperature
        self.augmentation_factor = augmentation_factor
        self.exclude_from_inference = tuple(exclude_from_inference)
        self.seed = seed

    def build(self, variables):
        """Creates the copy of N that is saved with the optimizer."""
        if self.built:
            return
        super().build(variables)
        # A counted N is in no config, and a loaded posterior needs it.
        self._examples = self.add_variable(
            (),
            dtype="float32",
            aggregation="only_first_replica",
            name="examples",
        )

    def apply(self, grads, trainable_variables=None):
        """Moves every variable, and keeps N."""
        super().apply(grads, trainable_variables)
        self._examples.assign(self.number_of_examples())

    def prepare(self, model, x=None):
        """Returns the variables to move, with all that depends on them ready.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs, if there is one. Defaults to `None`.
        """
        if not model.built and x is not None:
            model._call_for(x, training=False)
        variables = model.trainable_variables
        if not self.built:
            if not tf.executing_eagerly():
                # Whoever has no state was told N or does not know it.
                self.dataset_size.value()
            with model.distribute_strategy.scope():
                model.optimizer.build(variables)
        unknown = [
            v.path for v in variables if not _keras.has_variable(self, v)
        ]
        if unknown:
            raise ValueError(
                f"`{type(self).__name__}` has a posterior of the variables "
                "that it was built with; compile other models, and layers "
                "that are no longer frozen, with a new optimizer. "
                f"Received: model={model.name!r} with {unknown}"
            )
        excluded = excluded_variables(model, self.exclude_from_inference)
        self._excluded = frozenset(
            _keras.variable_index(self, v)
            for v in variables
            if id(v) in excluded
        )
        return variables

    def check(self, variables):
        """Raises an error, or warns, where a posterior would not be one.

        Args:
            variables: What `prepare` returned.
        """
        uncertain = [v for v in variables if not self.is_excluded(v)]
        check_weights(
            type(self).__name__, uncertain, variables, "prior_precision"
        )

    def check_learned(self, evaluating=False):
        """Raises an error before the first step: there is no posterior yet.

        Args:
            evaluating: Whether a warning is enough, since an evaluation may
                come before training. N must be known. Defaults to `False`.
        """
        with tf.init_scope():
            if int(ops.convert_to_numpy(self.iterations)) > 0:
                return
        message = (
            f"`{type(self).__name__}` has no posterior before its first step. "
            "Train the model, or load a trained one with "
            "`keras.models.load_model`. `load_weights` loads the posterior "
            "only into a model that is built and compiled; to compile again "
            "forgets it. `keras.Model.predict` with `samples=0` shows the "
            "network without a posterior. Received: iterations=0"
        )
        if not evaluating or not self.dataset_size.known:
            raise ValueError(message)
        warnings.warn(message, stacklevel=2)

    def is_excluded(self, variable):
        """Whether a variable has neither prior nor noise."""
        return _keras.variable_index(self, variable) in self._excluded

    def number_of_examples(self):
        """Returns N, that of the training if it was not told again."""
        if not self.dataset_size.known and self.built:
            with tf.init_scope():
                trained = float(ops.convert_to_numpy(self._examples)) > 0
            if trained:
                return tf.convert_to_tensor(self._examples.value)
        return self.dataset_size.value()

    def temperature_now(self):
        """Returns tau at this iteration."""
        if callable(self.temperature):
            return ops.cast(self.temperature(self.iterations), "float32")
        return ops.convert_to_tensor(self.temperature, "float32")

    def kl_weight(self):
        """Returns tau / (rho N), see (1)."""
        size = self.augmentation_factor * self.number_of_examples()
        return self.temperature_now() / size

    def scaled_prior(self, variable):
        """Returns delta_t of a variable, 0 if it is excluded."""
        if self.is_excluded(variable):
            return ops.zeros((), variable.dtype)
        prior = self.prior_precision * self.kl_weight()
        return ops.cast(prior, variable.dtype)

    def get_config(self):
        """Returns every constructor argument but those refused."""
        config = super().get_config()
        drop_options(config, _NO_USE)
        serialize = keras.saving.serialize_keras_object
        return {
            **config,
            "dataset_size": self.dataset_size.given,
            "prior_precision": self.prior_precision,
            "temperature": serialize(self.temperature),
            "augmentation_factor": self.augmentation_factor,
            "exclude_from_inference": list(self.exclude_from_inference),
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Returns the optimizer that `get_config` described."""
        config = dict(config)
        if "temperature" in config:
            config["temperature"] = keras.saving.deserialize_keras_object(
                config["temperature"], custom_objects=custom_objects
            )
        return super().from_config(config, custom_objects=custom_objects)
