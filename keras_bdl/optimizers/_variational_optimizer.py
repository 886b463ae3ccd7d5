"""Base class of the optimizers that fit a distribution over the weights."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._arguments import as_names
from keras_bdl._arguments import check_learning_rate
from keras_bdl._arguments import check_number
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._inherited_arguments import InheritedArguments
from keras_bdl._random._seeds import NoiseSeed
from keras_bdl.optimizers._keras_options import drop_options
from keras_bdl.optimizers._keras_options import refuse_options
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import check_any_weight
from keras_bdl.posteriors._covered_weights import check_weights
from keras_bdl.posteriors._covered_weights import excluded_variables
from keras_bdl.posteriors._covered_weights import learned_variables

# `apply` gets tuples of tensors, which Keras would not divide by this factor.
_NO_USE = ("loss_scale_factor",)


class VariationalOptimizer(
    InheritedArguments, NoiseSeed, keras.optimizers.Optimizer
):
    """Base with the prior, the temperature, N and the excluded weights.

    With N examples, augmentation factor rho, temperature tau and prior
    `N(0, 1/delta)`, the optimizer minimises

        E_q[loss] + tau / (rho N) KL(q || prior)                          (1)

    which fits q to `p(w) exp(-rho N loss(w) / tau)`: the temperature tau
    changes only the likelihood, and the prior stays as it is. In the gradient
    of (1), the prior is the term `delta_t w`, with
    `delta_t = tau delta / (rho N)`.

    Args:
        learning_rate: Float or schedule. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        prior_precision: delta, of the prior `N(0, 1/delta)` of every weight.
            Defaults to `1.0`.
        temperature: tau, float or schedule. tau changes only the likelihood.
            In samplers, the temperature also changes the prior. Defaults to
            `1.0`.
        augmentation_factor: rho, the factor by which data augmentation
            multiplies the number of examples. Defaults to `1.0`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables that have neither prior nor noise. Defaults to
            `("BatchNormalization",)`.
        seed: Seed of the noise. Defaults to `None`: a seed drawn when the
            optimizer is made, which depends on `keras.utils.set_random_seed`.
            The config holds the drawn number, and a resumed run continues with
            the same noise.
        name: Name of the optimizer. Defaults to `None`: Keras makes one from
            the name of the class.
        **kwargs: Options of `keras.optimizers.Optimizer`. Options that change
            the posterior, such as weight decay, raise an error.
    """

    # The weights of the model in training, or `None` before.
    trained_weights: TrainedWeights | None = None
    _excluded: frozenset = frozenset()
    _examples: Any = None  # a variable once built

    def __init__(
        self,
        learning_rate: FloatOrSchedule = 1e-3,
        dataset_size: int | None = None,
        *,
        prior_precision: float = 1.0,
        temperature: FloatOrSchedule = 1.0,
        augmentation_factor: float = 1.0,
        exclude_from_inference: str | Sequence[str] = ("BatchNormalization",),
        seed: int | None = None,
        name: str | None = None,
        **kwargs,
    ):
        refuse_options(
            self,
            kwargs,
            "; write weight decay as `prior_precision`, and scale "
            "losses with `keras.optimizers.LossScaleOptimizer`",
            others=_NO_USE,
        )
        check_learning_rate(learning_rate)
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        check_number("prior_precision", prior_precision, above=0.0)
        if not callable(temperature):
            check_number("temperature", temperature, above=0.0)
        check_number("augmentation_factor", augmentation_factor, above=0.0)
        self.choose_seed(seed)
        self.dataset_size = DatasetSize(
            dataset_size, type(self).__name__, on_count=self.counted
        )
        self.prior_precision = prior_precision
        self.temperature = temperature
        self.augmentation_factor = augmentation_factor
        self.exclude_from_inference = as_names(exclude_from_inference)

    def build(self, variables):
        """Creates a variable for N, so files of the optimizer contain N."""
        if self.built:
            return
        self.agree_on_seed()
        super().build(variables)
        # A loaded posterior needs N, and a config does not hold a counted N.
        self._examples = self.add_variable(
            (),
            dtype="float32",
            aggregation="only_first_replica",
            name="examples",
        )

    def counted(self) -> None:
        """Does what needs N: `fit` has counted the examples."""

    def apply(self, grads, trainable_variables=None):
        """Moves every variable and saves N."""
        super().apply(grads, trainable_variables)
        self._examples.assign(self.number_of_examples())

    def prepare(self, model: keras.Model, x: Any = None) -> list:
        """Returns the trainable weights, and builds the optimizer if needed.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs that builds the model. Defaults to `None`.
        """
        self._build_for(model, x)
        variables = model.trainable_variables
        self._check_known(model, variables)
        self._exclude(model, variables)
        return variables

    def learned(self, model: keras.Model, x: Any = None) -> list:
        """Returns the weights that were trained, also if they are frozen now.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs that builds the model. Defaults to `None`.
        """
        self._build_for(model, x)
        known = _keras.optimized_variables(self)
        variables = learned_variables(model, self.trained_weights, known)
        if self._knows_others(model):
            variables = model.trainable_variables
        self._check_known(model, variables)
        check_any_weight(type(self).__name__, variables)
        self._exclude(model, variables)
        return variables

    def _build_for(self, model, x):
        """Builds the model and the optimizer, if needed."""
        if not model.built and x is not None:
            _keras.call_with_training(model, x, training=False)
        if not self.built:
            if not tf.executing_eagerly():
                # A new optimizer has no saved N: raises if N is unknown.
                self.dataset_size.value()
            # A model without `Input` is built while its first step is traced.
            # Only outside of that graph do new variables have values at once.
            with tf.init_scope(), model.distribute_strategy.scope():
                model.optimizer.build(model.trainable_variables)

    def _knows_others(self, model):
        """Returns whether the optimizer was built for another model."""
        weights = {id(v) for v in model.weights}
        known = _keras.optimized_variables(self)
        return any(id(v) not in weights for v in known)

    def _check_known(self, model, variables):
        known = {id(v) for v in _keras.optimized_variables(self)}
        unknown = [v.path for v in variables if id(v) not in known]
        if unknown:
            raise ValueError(
                f"`{type(self).__name__}` holds the posterior of the variables "
                "that it was built with. Compile another model, or a model "
                "with newly unfrozen layers, with a new optimizer. "
                f"Received: model={model.name!r} with {unknown}"
            )

    def _exclude(self, model, variables):
        excluded = excluded_variables(model, self.exclude_from_inference)
        self._excluded = frozenset(
            _keras.variable_index(self, v)
            for v in variables
            if id(v) in excluded
        )

    def check(self, variables: list) -> None:
        """Raises or warns if the posterior of a weight would be wrong.

        Args:
            variables: The variables that `prepare` returned.
        """
        uncertain = [v for v in variables if not self.is_excluded(v)]
        check_weights(
            type(self).__name__,
            uncertain,
            variables,
            prior="prior_precision",
        )

    def check_learned(self, evaluating: bool = False) -> None:
        """Raises an error before the first step: no posterior exists yet.

        Args:
            evaluating: Whether to warn instead of raising if N is known,
                because a model may be evaluated before training. Defaults to
                `False`.
        """
        with tf.init_scope():
            if int(ops.convert_to_numpy(self.iterations)) > 0:
                return
        message = (
            f"`{type(self).__name__}` has no posterior before its first step. "
            "Train the model, or load a trained one with "
            "`keras.models.load_model`. `load_weights` loads the posterior "
            "only into a model that is built and compiled. Compiling again "
            "discards the posterior. `keras.Model.predict` with `samples=0` "
            "uses the network without a posterior. Received: iterations=0"
        )
        if not evaluating or not self.dataset_size.known:
            raise ValueError(message)
        warnings.warn(message, stacklevel=2)

    def is_excluded(self, variable: keras.Variable) -> bool:
        """Returns whether a variable has neither prior nor noise."""
        return _keras.variable_index(self, variable) in self._excluded

    def number_of_examples(self) -> tf.Tensor:
        """Returns N; a loaded optimizer returns the N of its training."""
        size = self.dataset_size
        # A loaded model has not shown its number of labels yet.
        if self.built and (not size.known or size.labels is None):
            with tf.init_scope():
                trained = float(ops.convert_to_numpy(self._examples)) > 0
            if trained:
                return tf.convert_to_tensor(self._examples.value)
        return self.dataset_size.value()

    def temperature_now(self) -> tf.Tensor:
        """Returns the temperature tau at this iteration."""
        if callable(self.temperature):
            return ops.cast(self.temperature(self.iterations), "float32")
        return ops.convert_to_tensor(self.temperature, "float32")

    def kl_weight(self) -> tf.Tensor:
        """Returns `tau / (rho N)` of (1)."""
        size = self.augmentation_factor * self.number_of_examples()
        return self.temperature_now() / size

    def scaled_prior(self, variable: keras.Variable) -> tf.Tensor:
        """Returns delta_t of a variable; 0 for an excluded variable."""
        return self.prior_term(self.is_excluded(variable), variable.dtype)

    def prior_term(self, excluded: bool, dtype: Any) -> tf.Tensor:
        """Returns delta_t of a dtype; 0 for excluded variables.

        Args:
            excluded: Whether the variables are excluded from inference.
            dtype: The dtype of the variables.
        """
        if excluded:
            return ops.zeros((), dtype)
        return ops.cast(self.prior_precision * self.kl_weight(), dtype)

    def get_config(self):
        """Returns every argument that the constructor accepts."""
        config = drop_options(super().get_config(), _NO_USE)
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
