"""Base class of the objectives that fit a Gaussian to the posterior."""

import functools
import math
import warnings
import weakref
from collections.abc import Callable
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number
from keras_bdl._backend import outside_of_trace
from keras_bdl._models._trainer import variables_to_build
from keras_bdl._random._noise import EVALUATION
from keras_bdl._random._noise import draw_numbers
from keras_bdl._random._noise import random_bits
from keras_bdl._random._noise import split_numbers
from keras_bdl._random._seeds import NoiseSeed
from keras_bdl.curvature._capture import current_values
from keras_bdl.distributions import MeanField
from keras_bdl.objectives._objective import Objective
from keras_bdl.objectives._objective import Outcome
from keras_bdl.optimizers._target import FittedGaussian
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors._covered_weights import check_weights
from keras_bdl.posteriors._covered_weights import excluded_variables
from keras_bdl.posteriors._covered_weights import learned_variables

KINDS = ("fixed", "scalar", "diagonal")
# sigma_0 by default. The fixed one was measured with 118 to 4,500 examples.
LEARNED, FIXED = 0.01, 0.03


class GaussianObjective(FittedGaussian, NoiseSeed, Objective):
    """Base of the objectives that fit a Gaussian q over the weights.

        w = mu + sigma eps,   eps ~ N(0, I)                               (1)
        log sigma = log sigma_0 + c v                                     (2)

    mu are the weights of the model. The complexity is `KL(q || prior)`. v is
    zero before the first step; `"fixed"` has no v, `"scalar"` one for each
    tensor of weights and `"diagonal"` one for each weight. The optimizer gets
    the gradient with respect to `log sigma` and applies its step to v, so
    `log sigma` moves c = `learning_rate_multiplier` times as far, also with
    optimizers that normalise gradients. `TaylorVI` documents the arguments.
    """

    trained_under_draws = False

    def __init__(
        self,
        covariance: str,
        stddev: float | None = None,
        *,
        learning_rate_equivalent: float | None = None,
        gradient_batch_size: int | None = None,
        learning_rate_multiplier: float = 10.0,
        seed: int | None = None,
        prior: PriorLike = None,
        temperature: FloatOrSchedule = 1.0,
        dataset_size: int | None = None,
        exclude_from_inference: str | Sequence[str] = ("BatchNormalization",),
    ):
        super().__init__(
            prior,
            temperature=temperature,
            dataset_size=dataset_size,
            exclude_from_inference=exclude_from_inference,
        )
        if gradient_batch_size is not None:
            check_number(
                "gradient_batch_size",
                gradient_batch_size,
                at_least=1,
                integer=True,
            )
        self.choose_seed(seed)
        check_choice("covariance", covariance, KINDS)
        check_number(
            "learning_rate_multiplier", learning_rate_multiplier, above=0.0
        )
        self.covariance = covariance
        self.stddev = stddev
        self.learning_rate_equivalent = learning_rate_equivalent
        self.gradient_batch_size = gradient_batch_size
        self.learning_rate_multiplier = learning_rate_multiplier
        self._learns = covariance != "fixed"
        self._initial_stddev = _initial_stddev(
            self._learns, stddev, learning_rate_equivalent, gradient_batch_size
        )
        self._shapes: list[tuple] = []
        self._weights: list[weakref.ref] = []
        self._log_stddevs: list[keras.Variable] = []

    @property
    def trainable_variables(self) -> list:
        """The variable v of (2), or none."""
        return self._log_stddevs

    @property
    def built(self) -> bool:
        """Whether all variables exist."""
        return bool(self._log_stddevs) or not self._learns

    def build(self, model: keras.Model) -> None:
        """Creates the variable v of (2), unless sigma is fixed."""
        if self.built:
            return
        weights = self._inferred(model, variables_to_build(model))
        self._weights = [weakref.ref(v) for v in weights]
        self._shapes = [tuple(v.shape) for v in weights]
        v = keras.Variable(
            "zeros",
            shape=(sum(self._sizes()),),
            dtype="float32",
            autocast=False,  # half precision would lose the small steps
            name="log_stddev",
        )
        self._log_stddevs = [v]

    def check(self, model: keras.Model, inferred: list) -> None:
        """Also checks that the weights can have a Gaussian posterior."""
        super().check(model, inferred)
        check_weights(type(self).__name__, inferred, model.trainable_variables)
        self._check_same_weights(inferred)

    def _check_same_weights(self, weights: list) -> None:
        before = [reference() for reference in self._weights]
        if self._learns and [id(v) for v in weights] != [id(v) for v in before]:
            shapes = [tuple(v.shape) for v in weights]
            raise ValueError(
                "An objective with learned variances belongs to the weights "
                "that it was built for. Compile with a new objective. "
                f"Received: other weights, of the shapes {shapes}, before "
                f"{self._shapes}"
            )

    def _check_learned(self) -> None:
        """Warns if no training step has changed v."""
        with outside_of_trace():
            if any(ops.convert_to_numpy(v).any() for v in self._log_stddevs):
                return
        if self._learns:
            warnings.warn(
                f"`{type(self).__name__}` has learned no variances yet and "
                "draws with the initial ones. Train the model, or load a "
                "trained one with `keras.models.load_model`. `load_weights` "
                "loads the variances only into a model that is built and "
                "compiled. Compiling again with a new objective discards them. "
                f"Received: stddev={self._initial_stddev}",
                stacklevel=3,
            )

    def stddevs(self, own: list, count: int) -> list:
        """Returns sigma for each of `count` tensors, from a tensor for v.

        A sigma is a number, or a tensor of the shape of the weights.
        """
        initial = ops.convert_to_tensor(self._initial_stddev, "float32")
        if not self._learns:
            return [initial] * count
        (v,) = own
        rest = (self.learning_rate_multiplier - 1.0) * ops.stop_gradient(v)
        stddev = initial * ops.exp(v + rest)  # (2)
        *ends, _ = accumulate(self._sizes())
        parts = ops.split(stddev, ends) if ends else [stddev]
        by_weight = self.covariance == "diagonal"
        shapes = self._shapes if by_weight else [()] * count
        return [ops.reshape(p, s) for p, s in zip(parts, shapes, strict=True)]

    def _sizes(self) -> list[int]:
        by_weight = self.covariance == "diagonal"
        return [math.prod(shape) if by_weight else 1 for shape in self._shapes]

    def kl_divergence(self, model: keras.Model) -> keras.KerasTensor:
        """Returns `KL(q || prior)` of a model, in nats."""
        self.prepare(model)
        inferred = self._inferred(model, self._learned(model))

        @functools.cache  # one sample of all weights, if any is needed
        def noises() -> list:
            return self.noises(model, inferred, stream=EVALUATION, number=0)

        return self._kl_divergence(
            current_values(inferred),
            current_values(self.trainable_variables),
            lambda i: noises()[i],
        )

    def _kl_divergence(
        self, means: list, own: list, noise: Callable[[int], Any]
    ) -> keras.KerasTensor:
        terms = []
        stddevs = self.stddevs(own, len(means))
        for i, (mean, stddev) in enumerate(zip(means, stddevs, strict=True)):
            mean = ops.cast(mean, "float32")
            q = MeanField(mean, ops.broadcast_to(stddev, mean.shape))
            terms.append(
                q.kl_divergence(self.prior, functools.partial(noise, i))
            )
        return ops.sum(ops.stack(terms))

    def update_metrics(
        self,
        model: keras.Model,
        x: Any,
        *,
        outcomes: list[Outcome],
        complexity: Any,
    ) -> None:
        """Updates the metrics `nll` and `kl`."""
        nll = ops.mean(ops.stack([one.nll for one in outcomes]))
        kl = complexity / self.dataset_size.value()
        model.update_evidence_bound(x, nll=nll, kl=kl)

    def noises(
        self, model: keras.Model, inferred: list, *, stream: int, number: int
    ) -> list:
        """Returns eps of (1) in sample `number`, a tensor for each variable.

        The stream is `TRAINING` or `EVALUATION`.
        """
        bits = random_bits(
            sum(math.prod(v.shape) for v in inferred),
            seed=self.noise_seed(),
            stream=stream,
            draw=number,
            step=0 if stream == EVALUATION else model.optimizer.iterations,
        )
        numbers = draw_numbers(bits)
        return split_numbers(numbers, [v.shape for v in inferred])

    def _drawn(
        self, positions: list[int], values: list, own: list, noises: list
    ) -> list:
        """Returns the weights with samples (1) at the given positions."""
        values = list(values)
        stddevs = self.stddevs(own, len(noises))
        for i, stddev, eps in zip(positions, stddevs, noises, strict=True):
            noise = ops.cast(stddev * eps, values[i].dtype)
            values[i] = values[i] + noise  # (1)
        return values

    def fitted_weights(
        self, model: keras.Model, x: Any = None, *, evaluating: bool = False
    ) -> list:
        """Returns the trained weights; warns if no step changed v."""
        self.prepare(model, x)
        self._check_learned()
        variables = self._learned(model)
        self._check_same_weights(self._inferred(model, variables))
        return variables

    def evaluation_sample(
        self, model: keras.Model, variables: list, draw: int
    ) -> list:
        """Returns one sample of the weights, the same in all calls."""
        inferred = self._inferred(model, variables)
        known = {id(v) for v in inferred}
        return self._drawn(
            [i for i, v in enumerate(variables) if id(v) in known],
            current_values(variables),
            current_values(self.trainable_variables),
            self.noises(model, inferred, stream=EVALUATION, number=draw),
        )

    def fitted_gaussian(
        self, model: keras.Model, variables: list, **options: Any
    ) -> Gaussian:
        """Returns q, with variance 0 of the weights without a deviation."""
        inferred = self._inferred(model, variables)
        stddevs = self.stddevs(
            current_values(self.trainable_variables), len(inferred)
        )
        of_variable = {
            id(v): np.square(ops.convert_to_numpy(stddev))
            for v, stddev in zip(inferred, stddevs, strict=True)
        }
        variances = [of_variable.get(id(v), 0.0) for v in variables]
        return Gaussian(
            [ops.convert_to_numpy(v) for v in variables],
            [
                np.broadcast_to(variance, v.shape)
                for variance, v in zip(variances, variables, strict=True)
            ],
            **options,
        )

    def _learned(self, model: keras.Model) -> list:
        """Returns the weights that were trained, also if frozen now."""
        built = [v for one in self._weights if (v := one()) is not None]
        if built:
            # Excluded variables have no standard deviation.
            excluded = excluded_variables(model, self.exclude_from_inference)
            built += [v for v in model.trainable_variables if id(v) in excluded]
        return learned_variables(model, self.trained_weights, built)

    def _inferred(self, model: keras.Model, variables: list) -> list:
        excluded = excluded_variables(model, self.exclude_from_inference)
        return [v for v in variables if id(v) not in excluded]

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "covariance": self.covariance,
            "stddev": self.stddev,
            "learning_rate_equivalent": self.learning_rate_equivalent,
            "gradient_batch_size": self.gradient_batch_size,
            "learning_rate_multiplier": self.learning_rate_multiplier,
            "seed": self.seed,
        }


def _initial_stddev(
    learned: bool, stddev: float | None, rate: float | None, size: int | None
) -> float:
    given = {"stddev": stddev, "learning_rate_equivalent": rate}
    if stddev is not None and rate is not None:
        raise ValueError(
            "`stddev` and `learning_rate_equivalent` both set the variance. "
            f"Leave one of them out. Received: {given}"
        )
    if stddev is not None:
        check_number("stddev", stddev, above=0.0)
        return float(stddev)
    if rate is not None:
        check_number("learning_rate_equivalent", rate, above=0.0)
        if size is None:
            raise ValueError(
                "`learning_rate_equivalent` needs `gradient_batch_size`, the "
                "batch size of SGD with that learning rate. Give both. "
                "Received: gradient_batch_size=None"
            )
        return math.sqrt(rate / (2 * size))
    return LEARNED if learned else FIXED
