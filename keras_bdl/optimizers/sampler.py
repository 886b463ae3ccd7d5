"""What all samplers have in common."""

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl import priors
from keras_bdl.arguments import check_learning_rate
from keras_bdl.arguments import check_number
from keras_bdl.arguments import check_seed
from keras_bdl.data.dataset_size import DatasetSize
from keras_bdl.optimizers.keras_options import REFUSED
from keras_bdl.random.counter_numbers import counter_normal


class Sampler(keras.optimizers.Optimizer):
    """Base of the optimizers whose iterates are samples of a posterior.

    With `loss` the mean negative log-likelihood over the examples, plus
    `-log p(w)/N` of any prior that a regularizer puts into it, the target is

        exp(-U(w) / T),   U(w) = N loss(w) - log p(w)                     (1)

    where `p` is `prior`, for the variables that have no regularizer. At
    `T = 1` this is the posterior; likelihood and prior are tempered alike.
    `keras_bdl.Model` and `SampleCollector` refuse a loss that is a sum over
    the batch, which a plain `keras.Model` does not show to its optimizer.

    The noise of the minibatches should be fresh in every epoch. Keras shuffles
    arrays in the same way in every epoch once `keras.utils.set_random_seed`
    was called; `tf.data.Dataset.shuffle` does not. Even so, minibatches
    without replacement have noise that cancels over an epoch. A thermostat
    takes it for white, and makes samples too narrow, where it forgets, in
    `-log(friction) / (T h0^2)` steps, about as fast as an epoch passes.

    Args:
        learning_rate: Float or schedule.
        dataset_size: N, the number of training examples.
        temperature: T, a float or a schedule of it.
        prior: See (1); one of `keras_bdl.priors`, a distribution of
            TensorFlow Probability, or `None`: flat.
        seed: Seed of the noise.
        name: Name of the optimizer.
        kwargs: `loss_scale_factor` of `keras.optimizers.Optimizer`.
            Options that would change the target are refused.

    Attributes:
        virials: `Virials` to keep while training, or `None`.
    """

    virials = None

    def __init__(
        self,
        learning_rate,
        dataset_size,
        temperature,
        prior,
        seed,
        name,
        kwargs,
    ):
        changing = sorted(k for k in REFUSED if kwargs.pop(k, None))
        if changing:
            raise ValueError(
                f"`{type(self).__name__}` draws from the posterior, and these "
                "options would make it another one; leave them out, and write "
                f"weight decay as a `prior`. Received: {changing}"
            )
        kwargs.pop("ema_momentum", None)  # of a config; unused without EMA
        kwargs.pop("ema_overwrite_frequency", None)
        check_learning_rate(learning_rate)
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if not callable(temperature):
            check_number("temperature", temperature, at_least=0.0)
        check_seed(seed)
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)
        self.temperature = temperature
        self.prior = priors.get(prior)
        self.seed = seed

    def build(self, variables):
        """Notes which variables bring a prior of their own."""
        if not self.built:
            self._has_own_prior = [v.regularizer is not None for v in variables]
            self._refuse(
                "have no constraint, which would cut the posterior",
                [v for v in variables if v.constraint is not None],
            )
            self._refuse(
                "be float32 or float64, since its steps are smaller than the "
                "spacing of shorter numbers; use a mixed policy for speed, "
                "such as `mixed_bfloat16`",
                [v for v in variables if v.dtype not in ("float32", "float64")],
            )
        super().build(variables)

    def apply(self, grads, trainable_variables=None):
        """Moves every variable; one without a gradient is an error."""
        grads = list(grads)
        variables = trainable_variables or _keras.optimized_variables(self)
        self._refuse(
            "have a gradient; set `trainable=False` where the loss has none",
            [v for g, v in zip(grads, variables, strict=False) if g is None],
        )
        super().apply(grads, trainable_variables)

    def _refuse(self, rule, variables):
        if variables:
            raise ValueError(
                f"Every variable that `{type(self).__name__}` samples must "
                f"{rule}. Received: {[v.path for v in variables]}"
            )

    def scale_loss(self, loss):
        """Scales the loss; one that is not a single number is an error."""
        if len(loss.shape):
            raise ValueError(
                f"`{type(self).__name__}` needs a loss that is the mean over "
                'the batch, with reduction="sum_over_batch_size". '
                f"Received: a loss of shape {tuple(loss.shape)}"
            )
        return super().scale_loss(loss)

    def energy_gradient(self, gradient, variable):
        """Returns the gradient of U at a variable."""
        gradient = self.dataset_size.value() * ops.cast(gradient, "float32")
        index = _keras.variable_index(self, variable)
        if self.prior is not None and not self._has_own_prior[index]:
            gradient = gradient - self._score(variable)
        if self.virials is not None:
            self.virials.add(self, index, variable, gradient)
        return gradient

    @property
    def sampled_variables(self):
        """The variables that are sampled, in the order of all lists here."""
        return list(_keras.optimized_variables(self))

    def temperature_now(self):
        """Returns T at this iteration."""
        if callable(self.temperature):
            return ops.cast(self.temperature(self.iterations), "float32")
        return self.temperature

    def noise(self, variable):
        """Returns the noise of this iteration for a variable."""
        return counter_normal(
            variable.shape,
            "float32",
            seed=self.seed,
            index=_keras.variable_index(self, variable),
            step=self.iterations,
        )

    def get_config(self):
        """Returns every constructor argument but those refused."""
        if self.prior is not None and not hasattr(self.prior, "get_config"):
            raise ValueError(
                "`prior` must have `get_config` for the sampler to be saved, "
                "as those of `keras_bdl.priors` have. Save the weights alone, "
                "with `model.save_weights`, or use one of them. "
                f"Received: prior={self.prior!r}"
            )
        config = super().get_config()
        for name in (*REFUSED, "ema_momentum", "ema_overwrite_frequency"):
            config.pop(name, None)
        serialize = keras.saving.serialize_keras_object
        config["dataset_size"] = self.dataset_size.given
        config["temperature"] = serialize(self.temperature)
        config["prior"] = None if self.prior is None else serialize(self.prior)
        config["seed"] = self.seed
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Returns the sampler that `get_config` described."""
        config = dict(config)
        for name in ("temperature", "prior"):
            if name in config:
                config[name] = keras.saving.deserialize_keras_object(
                    config[name], custom_objects=custom_objects
                )
        return super().from_config(config, custom_objects=custom_objects)

    def _score(self, variable):
        value = ops.cast(ops.convert_to_tensor(variable), "float32")
        with tf.GradientTape() as tape:
            tape.watch(value)
            log_prob = ops.sum(self.prior.log_prob(value))
        return tape.gradient(log_prob, value)
