"""Base class of the samplers."""

from typing import Any
from typing import Literal

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl import priors
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_learning_rate
from keras_bdl._arguments import check_number
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._data._dataset_size import guard_loss_of_step
from keras_bdl._inherited_arguments import InheritedArguments
from keras_bdl._random._keyed_noise import counter_bits
from keras_bdl.optimizers._keras_options import drop_options
from keras_bdl.optimizers._keras_options import refuse_options
from keras_bdl.optimizers._saves_seed import SavesSeed

# The prior "default", twice as wide as He's initial weights. With less width,
# predictions are too uncertain; with a wider one, they are worse under shift.
_BY_FAN_IN = priors.HeNormal(gain=8.0)
_OF_TABLES = priors.Normal(1.0)


class Sampler(InheritedArguments, SavesSeed, keras.optimizers.Optimizer):
    """Base of the optimizers whose iterates are samples of a posterior.

    Let `loss` be the mean negative log-likelihood of the examples, plus
    `-log p(w)/N` for each prior that is a regularizer. The target is

        exp(-U(w) / T),   U(w) = N loss(w) - log p(w)                     (1)

    where `p` is `prior`, over the variables without a regularizer. At
    `T = 1` the target is the posterior. The temperature changes likelihood and
    prior alike: both are raised to the power 1 / T.

    `fit` refuses a loss that is a sum over the batch. A binary cross-entropy
    or a Poisson loss of Keras averages over the labels of an example, and the
    likelihood of the example is the product: `fit` therefore counts each label
    as an observation. In a training loop of your own, compute the gradient of
    the mean over examples of the sum over labels.

    Minibatches should be shuffled anew in every epoch. After
    `keras.utils.set_random_seed`, Keras shuffles arrays the same way in every
    epoch. `keras_bdl.datasets.EpochCounter().batches` has a new order in each
    epoch, which a resumed run continues. `tf.data.Dataset.shuffle` has new
    orders, too, but a resumed run starts them again. Minibatches are drawn
    without replacement, so their noise cancels over an epoch, but a thermostat
    assumes white noise.
    The memory of the thermostat is `-log(friction) / (T h0^2)` steps, with h0
    the initial learning rate. If this memory is about one epoch or shorter, the
    samples are too narrow.

    Args:
        learning_rate: Float or schedule, the step size h. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        temperature: T, float or schedule. T changes likelihood and prior
            alike; `0` is descent without noise. Defaults to `1.0`.
        prior: Prior of every variable without a regularizer: one of
            `keras_bdl.priors`, a distribution of TensorFlow Probability, or
            `None` for a flat prior, under which weights that the data do not
            determine grow without end. (In layers and objectives, `None` means
            `Normal(1.0)`.) Defaults to `"default"`: `HeNormal(gain=8.0)`, and
            `Normal(1.0)` for the tables of `Embedding`.
        seed: Seed of the noise. Defaults to `None`: a seed drawn when the
            optimizer is made, which depends on `keras.utils.set_random_seed`.
            The config holds the drawn number, and a resumed run continues with
            the same noise.
        gradient_accumulation_steps: Number of batches whose gradients are
            averaged for one step of the chain, at least 2. With equal batches,
            the step is that of one batch with all examples. Defaults to
            `None`: one batch.
        name: Name of the optimizer. Defaults to `None`: Keras makes one from
            the name of the class.
        **kwargs: `loss_scale_factor` of `keras.optimizers.Optimizer`. Options
            that change the target, such as weight decay, raise an error.

    Attributes:
        virials: The `Virials` that each training step updates, or `None`.
    """

    virials = None

    def __init__(
        self,
        learning_rate: FloatOrSchedule = 1e-3,
        dataset_size: int | None = None,
        *,
        temperature: FloatOrSchedule = 1.0,
        prior: PriorLike | Literal["default"] = "default",
        seed: int | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs,
    ):
        refuse_options(
            type(self).__name__,
            kwargs,
            instead="; write weight decay as a `prior`",
        )
        check_learning_rate(learning_rate)
        if gradient_accumulation_steps is not None:
            check_count(
                "gradient_accumulation_steps",
                gradient_accumulation_steps,
                at_least=2,
            )
        super().__init__(
            learning_rate=learning_rate,
            gradient_accumulation_steps=gradient_accumulation_steps,
            name=name,
            **kwargs,
        )
        if not callable(temperature):
            check_number("temperature", temperature, at_least=0.0)
        self.choose_seed(seed)
        # Stored too, because Keras rounds a number to float32.
        self._given_learning_rate = learning_rate
        self.dataset_size = DatasetSize(dataset_size, type(self).__name__)
        self.temperature = temperature
        self.prior = prior if _is_default(prior) else priors.get(prior)

    def build(self, variables):
        """Chooses the prior of each variable."""
        if not self.built:
            self.agree_on_seed(tf.distribute.get_strategy())
            self._priors = [self._prior_of(v) for v in variables]
            self._refuse(
                "have no constraint, which would cut the posterior",
                [v for v in variables if v.constraint is not None],
            )
            self._refuse(
                "be float32 or float64, since its steps are smaller than the "
                "spacing of shorter numbers. Use a mixed policy for speed, "
                "such as `mixed_bfloat16`",
                [v for v in variables if v.dtype not in ("float32", "float64")],
            )
        super().build(variables)

    def _prior_of(self, variable):
        """Returns the prior that the sampler adds, or `None`."""
        # Variables of TensorFlow have no regularizer.
        if getattr(variable, "regularizer", None) is not None:
            return None
        if not _is_default(self.prior):
            return self.prior
        # A row of a table is an output by itself, not one of a sum of rows.
        is_table = variable.name in ("embeddings", "embeddings:0")
        return _OF_TABLES if is_table else _BY_FAN_IN

    def apply(self, grads, trainable_variables=None):
        """Moves every variable; raises for a variable without a gradient."""
        grads = list(grads)
        variables = trainable_variables or _keras.optimized_variables(self)
        self._refuse(
            "have a gradient. Set `trainable=False` where the loss has none",
            [v for g, v in zip(grads, variables, strict=False) if g is None],
        )
        guard_loss_of_step(self.dataset_size)
        super().apply(grads, trainable_variables)

    def _refuse(self, rule, variables):
        if variables:
            raise ValueError(
                f"Every variable that `{type(self).__name__}` samples must "
                f"{rule}. Received: {[_path(v) for v in variables]}"
            )

    def scale_loss(self, loss):
        """Scales the loss; raises for a loss that is not a single number."""
        shape = loss.shape if hasattr(loss, "shape") else np.shape(loss)
        if len(shape):
            raise ValueError(
                f"`{type(self).__name__}` needs a loss that is the mean over "
                'the batch, with reduction="sum_over_batch_size". '
                f"Received: a loss of shape {tuple(shape)}"
            )
        return super().scale_loss(loss)

    def energy_gradient(
        self, gradient: Any, variable: keras.Variable
    ) -> tf.Tensor:
        """Returns the gradient of U with respect to a variable."""
        gradient = self.dataset_size.value() * ops.cast(gradient, "float32")
        index = _keras.variable_index(self, variable)
        prior = self._priors[index]
        if prior is not None:
            value = ops.cast(ops.convert_to_tensor(variable), "float32")
            gradient = gradient - _score(prior, value)
        if self.virials is not None:
            self.virials.add(self, index, variable, gradient)
        return gradient

    @property
    def sampled_variables(self) -> list:
        """The sampled variables, in the order of the optimizer."""
        return list(_keras.optimized_variables(self))

    def temperature_now(self) -> float | tf.Tensor:
        """Returns the temperature T at this iteration."""
        if callable(self.temperature):
            return ops.cast(self.temperature(self.iterations), "float32")
        return self.temperature

    def random_bits(self, variable: keras.Variable) -> tf.Tensor:
        """Returns the bits of the noise of a variable at this iteration.

        `keras_bdl._random._gaussian_weights.normal_numbers` makes the noise.
        """
        return counter_bits(
            variable.shape,
            seed=self.noise_seed(),
            index=_keras.variable_index(self, variable),
            step=self.iterations,
        )

    def get_config(self):
        """Returns every argument that the constructor accepts."""
        given = self.prior is not None and not _is_default(self.prior)
        if given and not hasattr(self.prior, "get_config"):
            raise ValueError(
                "A sampler can be saved only if its `prior` has `get_config`, "
                "as the priors of `keras_bdl.priors` do. Use one of them, or "
                "save the weights alone with `model.save_weights`. "
                f"Received: prior={self.prior!r}"
            )
        config = super().get_config()
        drop_options(config)
        serialize = keras.saving.serialize_keras_object
        config["dataset_size"] = self.dataset_size.given
        config["temperature"] = serialize(self.temperature)
        config["prior"] = serialize(self.prior) if given else self.prior
        config["seed"] = self.seed
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Returns the sampler that `get_config` described."""
        config = dict(config)
        for name in ("temperature", "prior"):
            if isinstance(config.get(name), dict):
                config[name] = keras.saving.deserialize_keras_object(
                    config[name], custom_objects=custom_objects
                )
        return super().from_config(config, custom_objects=custom_objects)


def _path(variable):
    # Variables of TensorFlow have only a name.
    return getattr(variable, "path", variable.name)


def _is_default(prior):
    return isinstance(prior, str) and prior == "default"


def _score(prior, value):
    """Returns the gradient of the log density of a variable."""
    # Subclasses may have another density.
    if type(prior) is priors.HeNormal:
        prior = prior.of_shape(value.shape)
    if type(prior) is priors.Normal:  # two operations in place of ten
        distance = value - prior.mean if prior.mean else value
        return (-1.0 / prior.stddev**2) * distance
    with tf.GradientTape() as tape:
        tape.watch(value)
        log_prob = ops.sum(prior.log_prob(value))
    return tape.gradient(log_prob, value)
