"""The priors and the posteriors of the weights of a variational layer."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl import priors
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import did_you_mean
from keras_bdl.distributions import MeanField
from keras_bdl.distributions._stored_prior import StoredPrior
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.layers._call_attributes import assigned


class WeightPriors:
    """Gives each `WeightPosterior` of a layer its prior.

    A prior with tensors as parameters is stored in non-trainable weights of the
    layer, such as `kernel_prior_mean` and `kernel_prior_stddev`.

    Attributes:
        prior: Prior of kernel or embeddings, and of the bias if `bias_prior`
            is `None`.
        bias_prior: Prior of the bias, or `None`.
        prior_version: Number of changes after which Keras must trace a step
            again. Every other prior counts, except new values of a stored
            prior.
    """

    prior_version = 0
    prior: Any
    bias_prior: Any
    _compiled_draw: Any

    @property
    def posteriors(self) -> dict[str, WeightDistribution]:
        """The present distribution of each tensor of weights, by name."""
        return {p.name: p.distribution() for p in self.weight_posteriors}

    @property
    def weight_posteriors(self) -> tuple["WeightPosterior", ...]:
        """The `WeightPosterior` of each tensor: its variables and its prior."""
        raise NotImplementedError

    def set_prior(self, **priors_of_weights: PriorLike) -> None:
        """Gives tensors of weights another prior, also after training.

        The layer copies a distribution of `keras_bdl.distributions` into
        weights of its own. If only the values of such weights change, no
        training step is traced again. Otherwise `keras_bdl.Model` traces its
        training step again. Compile a plain `keras.Model` again: its training
        step contains the old prior.

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

    def _prior_of(self, name):
        if name == "bias" and self.bias_prior is not None:
            return self.bias_prior
        return self.prior

    def _use_prior(self, posterior, prior):
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

    def _add_stored(self, posterior):
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


def as_prior(prior):
    """Returns a prior with `log_prob`, a `StoredPrior`, or `None`.

    Args:
        prior: The argument of a layer, or the config of a prior.
    """
    if isinstance(prior, dict) and "class_name" in prior:
        prior = keras.saving.deserialize_keras_object(prior)
    if isinstance(prior, WeightDistribution):
        return StoredPrior.of(prior)
    return prior if isinstance(prior, StoredPrior) else priors.get(prior)


def gaussian(q):
    """Returns the Gaussian p of independent weights that minimises KL(q || p).

    Its means and variances are those of q.

    Args:
        q: A `WeightDistribution`.
    """
    if isinstance(q, MeanField):
        return q
    return MeanField(q.mean, ops.sqrt(q.variance))


def mean_or_assigned(layer, name):
    """Returns the mean of a weight, or the value assigned to an attribute.

    Args:
        layer: A layer with the `WeightPosterior`s `_posteriors`.
        name: Name of the attribute.
    """
    for posterior in layer._posteriors:
        if posterior.name == name:
            return ops.cast(posterior.mean, layer.compute_dtype)
    return assigned(layer, name)


def _stored_names(posterior):
    return [f"{posterior.name}_prior_{part}" for part in ("mean", "stddev")]


class WeightPosterior:
    """The variables of one distribution, and its prior.

    Args:
        name: Name of the tensor: `"kernel"`, `"embeddings"` or `"bias"`.
        family: A subclass of `WeightDistribution`.
        mean: The variable of the means.
        rho: The variable of `softplus^-1(stddev)`.

    Attributes:
        prior: The result of `keras_bdl.priors.get`, or a `StoredPrior`.
        stored: The variables of a `StoredPrior`, its mean and its scale.
    """

    def __init__(self, name, family, mean, rho):
        self.name = name
        self.family = family
        self.mean = mean
        self.rho = rho
        self.prior: Any = None
        self.stored: Any = ()
        self.shape = tuple(mean.shape)
        self.num_normals = family.num_normals(math.prod(self.shape))

    def read(self):
        """Returns the tensors that all variables hold now."""
        variables = (self.mean, self.rho, *self.stored)
        return [tf.convert_to_tensor(v) for v in variables]

    def distribution(self, tensors=None):
        """Returns the distribution with the tensors that `read` returns."""
        mean, rho, *_ = tensors or self.read()
        return self.family(mean, tf.nn.softplus(rho))

    def prior_distribution(self, tensors):
        """Returns the prior with the tensors that `read` returns."""
        _, _, *stored = tensors
        return self.prior.distribution(*stored) if stored else self.prior
