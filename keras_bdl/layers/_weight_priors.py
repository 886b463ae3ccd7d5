"""The priors of a variational layer, also those that the layer stores."""

import contextlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import did_you_mean
from keras_bdl.distributions import MeanField
from keras_bdl.distributions import Radial
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.layers._weight_draw import WeightPosterior
from keras_bdl.priors._tfp_distribution import get_prior

FAMILIES = {"mean_field": MeanField, "radial": Radial}


class WeightPriors:
    """Gives each `WeightPosterior` of a layer its prior.

    A prior with tensors as parameters is stored in non-trainable weights of the
    layer, such as `kernel_prior_mean` and `kernel_prior_stddev`.
    """

    # Number of changes after which Keras must trace a step again. Every other
    # prior counts, except new values of a stored prior.
    prior_version = 0
    prior: Any
    bias_prior: Any
    add_weight: Callable
    _posteriors: tuple[WeightPosterior, ...]
    _compiled_draw: Any

    @property
    def posteriors(self) -> dict[str, WeightDistribution]:
        """The present distribution of each tensor of weights, by name."""
        return {p.name: p.distribution() for p in self.weight_posteriors}

    @property
    def weight_posteriors(self) -> tuple[WeightPosterior, ...]:
        """The `WeightPosterior` of each tensor: its variables and its prior."""
        raise NotImplementedError

    def set_prior(self, **priors_of_weights: PriorLike) -> None:
        """Gives tensors of weights another prior, also after training.

        The layer copies a distribution of `keras_bdl.distributions` into
        weights of its own. If only these values change, no training step is
        traced again. Otherwise `keras_bdl.Model` traces its step again; compile
        a plain `keras.Model` again, whose step contains the old prior.

        Args:
            **priors_of_weights: A prior for each name (`kernel`,
                `embeddings`, `bias`), of any kind that the layer accepts.
        """
        posteriors = {p.name: p for p in self.weight_posteriors}
        unknown = set(priors_of_weights) - set(posteriors)
        if unknown:
            raise ValueError(
                f"`{type(self).__name__}` has distributions of "
                f"{sorted(posteriors)}. Give priors for these names only. "
                f"{did_you_mean(min(unknown), posteriors)}"
                f"Received: priors of {sorted(unknown)}"
            )
        found = {n: as_prior(prior) for n, prior in priors_of_weights.items()}
        # All checks come before the first change.
        for name, prior in found.items():
            if prior is None:
                raise ValueError(
                    f"The prior of `{name}` must not be `None`. Give a prior "
                    "that the layer accepts, such as "
                    f"`keras_bdl.priors.Normal(1.0)`. Received: {name}=None"
                )
            if isinstance(prior, StoredPrior):
                prior.initial_values(posteriors[name].shape)
        self.bias_prior = self._prior_of("bias")
        before = [p.prior for p in self.weight_posteriors]
        for name, prior in found.items():
            self._use_prior(posteriors[name], prior)
            argument = "bias_prior" if name == "bias" else "prior"
            setattr(self, argument, posteriors[name].prior)
        pairs = zip(before, self.weight_posteriors, strict=True)
        if any(old is not p.prior for old, p in pairs):
            self.prior_version += 1
            self._compiled_draw.forget()

    def posterior_becomes_prior(
        self,
        transform: Callable[[WeightDistribution], PriorLike] | None = None,
        *,
        density: str = "gaussian",
    ) -> None:
        """Uses the learned posterior as the prior of the next training.

        `keras_bdl.continual.posterior_becomes_prior` does this for whole
        models. A plain `keras.Model` may need a new `compile`, see `set_prior`.

        Args:
            transform: Function that returns the prior for the distribution
                that `density` selects. Defaults to `None`: the distribution
                itself.
            density: `"gaussian"` or `"exact"`, as in
                `keras_bdl.continual.posterior_becomes_prior`. Defaults to
                `"gaussian"`.
        """
        check_choice("density", density, ("gaussian", "exact"))
        changed: dict[str, Any] = {}
        for name, q in self.posteriors.items():
            prior = gaussian(q) if density == "gaussian" else q
            changed[name] = prior if transform is None else transform(prior)
        self.set_prior(**changed)

    def _prior_of(self, name: str) -> Any:
        if name == "bias" and self.bias_prior is not None:
            return self.bias_prior
        return self.prior

    def _use_prior(self, posterior: WeightPosterior, prior: Any) -> None:
        if isinstance(prior, StoredPrior):
            values = prior.initial_values(posterior.shape)
            if posterior.stored and posterior.prior.family == prior.family:
                prior = posterior.prior
            else:
                # A copy without the values, which `stored` holds.
                prior = StoredPrior(prior.family)
            if not posterior.stored:
                posterior.stored = self._add_stored(posterior)
            for variable, value in zip(posterior.stored, values, strict=True):
                variable.assign(value)
        elif posterior.stored:
            posterior.stored = ()
            for name in _stored_names(posterior):
                delattr(self, name)
        posterior.prior = prior

    def _add_stored(self, posterior: WeightPosterior) -> list[keras.Variable]:
        # Make the variables on the same replicas as the mean.
        strategy = getattr(posterior.mean.value, "distribute_strategy", None)
        scope = strategy.scope() if strategy else contextlib.nullcontext()
        # Keras unlocks a built layer in the same way, to add weights of LoRA.
        with _keras.unlocked(self), scope:
            for name in _stored_names(posterior):
                variable = self.add_weight(
                    shape=posterior.shape,
                    initializer="zeros",
                    trainable=False,
                    dtype="float32",
                    autocast=False,
                    name=name,
                )
                setattr(self, name, variable)
        # Files hold weights by order, without names. So the order must be that
        # of a layer that is built with this prior.
        order = [n for p in self._posteriors for n in _stored_names(p)]
        _keras.sort_non_trainable(
            self, key=lambda v: order.index(v.name) if v.name in order else -1
        )
        return [getattr(self, name) for name in _stored_names(posterior)]


def as_prior(prior: Any) -> Any:
    """Returns a prior with `log_prob`, a `StoredPrior`, or `None`."""
    if isinstance(prior, dict) and "class_name" in prior:
        prior = keras.saving.deserialize_keras_object(prior)
    if isinstance(prior, WeightDistribution):
        return StoredPrior.of(prior)
    return prior if isinstance(prior, StoredPrior) else get_prior(prior)


def gaussian(q: WeightDistribution) -> MeanField:
    """Returns the Gaussian p of independent weights that minimises KL(q || p).

    Its means and variances are those of q.
    """
    if isinstance(q, MeanField):
        return q
    return MeanField(q.mean, ops.sqrt(q.variance))


def _stored_names(posterior: WeightPosterior) -> list[str]:
    return [f"{posterior.name}_prior_{part}" for part in ("mean", "stddev")]


@keras.saving.register_keras_serializable(package="keras_bdl")
class StoredPrior(ShowsArguments):
    """Makes a variational layer store its prior in variables.

    The layer gets non-trainable weights for the mean and the scale of each
    prior, and saves them with its other weights. The config holds only the
    family. If the `prior` of a layer is a `WeightDistribution`, the layer
    converts this prior to a `StoredPrior` with the same values. A
    `StoredPrior` that is made from a family has mean 0 and scale 1 in a new
    layer, until weights are loaded or `set_prior` is called.

    Args:
        family: `"mean_field"` or `"radial"`.

    Example:

    ```python
    prior = keras_bdl.extend.StoredPrior("radial")
    layer = keras_bdl.layers.RadialDense(10, prior=prior)
    layer.build((None, 4))  # creates `kernel_prior_mean`
    ```
    """

    def __init__(self, family: str):
        self.family = check_choice("family", family, tuple(FAMILIES))
        self._initial: WeightDistribution | None = None

    @classmethod
    def of(cls, distribution: WeightDistribution) -> "StoredPrior":
        """Returns a prior whose initial values are those of a distribution."""
        names = [n for n, f in FAMILIES.items() if type(distribution) is f]
        self = cls(*names)
        self._initial = distribution
        return self

    def initial_values(self, shape: Sequence[int]) -> tuple:
        """Returns the initial mean and scale of the prior in a new layer."""
        if self._initial is None:
            return np.zeros(shape, "float32"), np.ones(shape, "float32")
        return _checked_values(self._initial, tuple(shape))

    def distribution(
        self, mean: ArrayLike, stddev: ArrayLike
    ) -> WeightDistribution:
        """Returns the prior as a distribution, from the tensors of a layer."""
        return FAMILIES[self.family](mean, stddev)

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {"family": self.family}

    @classmethod
    def from_config(cls, config: dict) -> "StoredPrior":
        """Returns the prior that `get_config` described."""
        return cls(**config)


def _checked_values(
    distribution: WeightDistribution, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and scale, or raises if they cannot be those of a prior."""
    mean = ops.convert_to_numpy(distribution.mean)
    stddev = ops.convert_to_numpy(distribution.stddev)
    if mean.shape != shape or stddev.shape != shape:
        raise ValueError(
            "A distribution that is the prior of weights must have the shape "
            f"of the weights, {shape}. Give the kernel and the bias separate "
            "priors, with `bias_prior` or `set_prior`. Received: mean of shape "
            f"{mean.shape}, stddev of shape {stddev.shape}"
        )
    if not (np.isfinite(mean).all() and np.isfinite(stddev).all()):
        raise ValueError(
            "A prior must be finite. Check the training that made it. "
            "Received: NaN or infinity"
        )
    if not (stddev > 0).all():
        raise ValueError(
            "`stddev` of a prior must be positive everywhere. If it is a "
            "fraction of the weights, give it a lower bound. "
            f"Received: smallest stddev={stddev.min()}"
        )
    return mean, stddev
