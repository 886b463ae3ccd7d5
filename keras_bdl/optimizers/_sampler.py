"""Target, noise and options of all samplers."""

from typing import Any
from typing import TypedDict
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._aliases import PriorOrDefault
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._data._dataset_size import guard_loss_of_step
from keras_bdl._random._noise import sampler_bits
from keras_bdl.optimizers._sampler_prior import is_default
from keras_bdl.optimizers._sampler_prior import log_prior_gradient
from keras_bdl.optimizers._sampler_prior import prior_of
from keras_bdl.optimizers._target import NoOptions
from keras_bdl.optimizers._target import PosteriorOptimizer
from keras_bdl.priors._tfp_distribution import get_prior


class SamplerOptions(TypedDict, total=False):
    """The arguments that `ATMC`, `SGNHT`, `SGHMC` and `SGLD` share.

    Args:
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
        loss_scale_factor: Factor of the loss in the backward pass, as in
            `keras.optimizers.Optimizer`. Defaults to `None`: no factor.
        name: Name of the optimizer. Defaults to `None`: Keras makes one from
            the name of the class.
    """

    temperature: FloatOrSchedule
    prior: PriorOrDefault
    seed: int | None
    gradient_accumulation_steps: int | None
    loss_scale_factor: float | None
    name: str | None


class Sampler(PosteriorOptimizer):
    """Base of the optimizers whose iterates are samples of a posterior.

    Let `loss` be the mean negative log-likelihood of the examples, plus
    `-log p(w)/N` for each prior that is a regularizer. The target is

        exp(-U(w) / T),   U(w) = N loss(w) - log p(w)                     (1)

    where `p` is `prior`, over the variables without a regularizer. A loss of
    Keras averages over the labels of an example, and the likelihood of the
    example is their product, so `fit` counts each label as an observation.
    """

    advice = "; write weight decay as a `prior`"
    virials: Any = None  # updated by each step if `ChainDiagnostics` sets it

    def __init__(
        self,
        learning_rate: FloatOrSchedule = 1e-3,
        dataset_size: int | None = None,
        *,
        temperature: FloatOrSchedule = 1.0,
        prior: PriorOrDefault = "default",
        seed: int | None = None,
        gradient_accumulation_steps: int | None = None,
        loss_scale_factor: float | None = None,
        name: str | None = None,
        **options: Unpack[NoOptions],
    ):
        if gradient_accumulation_steps is not None:
            check_count(
                "gradient_accumulation_steps",
                gradient_accumulation_steps,
                at_least=2,
            )
        if not callable(temperature):
            check_number("temperature", temperature, at_least=0.0)
        super().__init__(
            learning_rate,
            dataset_size,
            temperature=temperature,
            seed=seed,
            gradient_accumulation_steps=gradient_accumulation_steps,
            loss_scale_factor=loss_scale_factor,
            name=name,
            **options,
        )
        given: Any = prior
        self.prior = given if is_default(given) else get_prior(given)

    def build(self, variables: list) -> None:
        """Chooses the prior of each variable; refuses wrong variables."""
        if not self.built:
            self.agree_on_seed()
            self._priors = [prior_of(v, self.prior) for v in variables]
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

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Moves every variable; raises for a variable without a gradient."""
        grads = list(grads)
        variables = trainable_variables or _keras.optimized_variables(self)
        self._refuse(
            "have a gradient. Set `trainable=False` where the loss has none",
            [v for g, v in zip(grads, variables, strict=False) if g is None],
        )
        guard_loss_of_step(self.dataset_size)
        super().apply(grads, trainable_variables)

    def _refuse(self, rule: Any, variables: Any) -> None:
        if variables:
            # Variables of TensorFlow have only a name.
            paths = [getattr(v, "path", v.name) for v in variables]
            raise ValueError(
                f"Every variable that `{type(self).__name__}` samples must "
                f"{rule}. Received: {paths}"
            )

    def scale_loss(self, loss: Any) -> Any:
        """Scales the loss; raises for a loss that is not a single number."""
        shape = loss.shape if hasattr(loss, "shape") else np.shape(loss)
        if len(shape):
            raise ValueError(
                f"`{type(self).__name__}` needs a loss that is the mean over "
                'the batch, with reduction="sum_over_batch_size". '
                f"Received: a loss of shape {tuple(shape)}"
            )
        return super().scale_loss(loss)

    def energy_gradient(self, gradient: Any, variable: Any) -> Any:
        """Returns `grad U = N grad loss - grad log p` of a variable."""
        gradient = self.dataset_size.value() * ops.cast(gradient, "float32")
        index = _keras.variable_index(self, variable)
        prior = self._priors[index]
        if prior is not None:
            value = ops.cast(ops.convert_to_tensor(variable), "float32")
            gradient = gradient - log_prior_gradient(prior, value)
        if self.virials is not None:
            self.virials.add(self, index, variable, gradient)
        return gradient

    def random_bits(self, variable: Any) -> Any:
        """Returns the bits of the noise of a variable at this iteration."""
        return sampler_bits(
            variable.shape,
            seed=self.noise_seed(),
            index=_keras.variable_index(self, variable),
            step=self.iterations,
        )

    @property
    def sampled_variables(self) -> list:
        """The sampled variables, in the order of the optimizer."""
        return list(_keras.optimized_variables(self))

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        given = self.prior is not None and not is_default(self.prior)
        if given and not hasattr(self.prior, "get_config"):
            raise ValueError(
                "A sampler can be saved only if its `prior` has `get_config`, "
                "as the priors of `keras_bdl.priors` do. Use one of them, or "
                "save the weights alone with `model.save_weights`. "
                f"Received: prior={self.prior!r}"
            )
        prior = self.prior
        if given:
            prior = keras.saving.serialize_keras_object(prior)
        return {**super().get_config(), "prior": prior}
