"""The priors and the posteriors of the weights of a variational layer."""

import contextlib
import math

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl import priors
from keras_bdl.distributions import StoredPrior
from keras_bdl.distributions import WeightDistribution


class WeightPriors:
    """Gives each `WeightPosterior` of a layer its prior.

    Those that are made of tensors are kept in non-trainable weights of the
    layer, `kernel_prior_mean`, `kernel_prior_stddev` and so on.

    Attributes:
        prior: Of kernel or embeddings, and of the bias, if it has no other.
        bias_prior: Of the bias, or `None`.
        prior_version: How often tensors were given priors that a traced step
            does not know: others than before, not the same with other values.
    """

    prior_version = 0

    def set_prior(self, **priors_of_weights):
        """Gives tensors of weights another prior, also after training.

        A distribution of `keras_bdl.distributions` is copied into weights of
        the layer. Where only values of such weights change, no training step
        is traced again. Otherwise `keras_bdl.Model` traces it again by
        itself, and a plain `keras.Model` has to be compiled again, for its
        training step has the old prior built in.

        Args:
            **priors_of_weights: By name (`kernel`, `embeddings`, `bias`), a
                prior as the layer takes it.
        """
        posteriors = {p.name: p for p in self.weight_posteriors}
        unknown = set(priors_of_weights) - set(posteriors)
        if unknown:
            raise ValueError(
                f"`{type(self).__name__}` has distributions of "
                f"{sorted(posteriors)}. Received: priors of {sorted(unknown)}"
            )
        found = {n: as_prior(prior) for n, prior in priors_of_weights.items()}
        # All of them before the first one is used.
        for name, prior in found.items():
            if prior is None:
                raise ValueError(
                    f"The prior of `{name}` must be one that the layer takes, "
                    "such as `keras_bdl.priors.Normal(1.0)`. Received: None"
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

    def posterior_becomes_prior(self, transform=None):
        """Makes what was learned the prior of what comes next.

        See `set_prior` for what a compiled model needs, and
        `keras_bdl.continual.posterior_becomes_prior` for whole models.

        Args:
            transform: Function that makes the prior out of the distribution
                of a tensor. Defaults to `None`, that distribution.
        """
        learned = self.posteriors
        if transform is not None:
            learned = {name: transform(q) for name, q in learned.items()}
        self.set_prior(**learned)

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
                # Without the values, which would be kept twice.
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
        # On all replicas of the mean, whatever the scope of the caller.
        strategy = getattr(posterior.mean.value, "distribute_strategy", None)
        scope = strategy.scope() if strategy else contextlib.nullcontext()
        # As Keras does to give a layer that is built the weights of LoRA.
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
        # In the order of a layer that has them from the start: files have
        # weights without names.
        order = [n for p in self._posteriors for n in _stored_names(p)]
        _keras.sort_non_trainable(
            self, key=lambda v: order.index(v.name) if v.name in order else -1
        )
        return [getattr(self, name) for name in _stored_names(posterior)]


def as_prior(prior):
    """Returns a prior with `log_prob`, a `StoredPrior`, or `None`."""
    if isinstance(prior, dict) and "class_name" in prior:
        prior = keras.saving.deserialize_keras_object(prior)
    if isinstance(prior, WeightDistribution):
        return StoredPrior.of(prior)
    return prior if isinstance(prior, StoredPrior) else priors.get(prior)


def _stored_names(posterior):
    return [f"{posterior.name}_prior_{part}" for part in ("mean", "stddev")]


class WeightPosterior:
    """The variables of one distribution, and its prior.

    Args:
        name: Of the tensor: `"kernel"`, `"embeddings"` or `"bias"`.
        family: A `WeightDistribution`.
        mean: The variable of the means.
        rho: The variable of `softplus^-1(stddev)`.

    Attributes:
        prior: What `keras_bdl.priors.get` returns, or a `StoredPrior`.
        stored: The variables of a `StoredPrior`, its mean and its scale.
    """

    def __init__(self, name, family, mean, rho):
        self.name = name
        self.family = family
        self.mean = mean
        self.rho = rho
        self.prior = None
        self.stored = ()
        self.shape = tuple(mean.shape)
        self.num_normals = family.num_normals(math.prod(self.shape))

    def read(self):
        """Returns the tensors that all variables hold now."""
        variables = (self.mean, self.rho, *self.stored)
        return [tf.convert_to_tensor(v) for v in variables]

    def distribution(self, tensors=None):
        """Returns the distribution that `read` describes."""
        mean, rho, *_ = tensors or self.read()
        return self.family(mean, tf.nn.softplus(rho))

    def prior_distribution(self, tensors):
        """Returns the prior that `read` describes, with `log_prob`."""
        _, _, *stored = tensors
        return self.prior.distribution(*stored) if stored else self.prior
