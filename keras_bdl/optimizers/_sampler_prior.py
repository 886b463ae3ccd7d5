"""The prior of a sampler: which prior a variable has, and its gradient."""

from typing import Any

from keras import ops

from keras_bdl import priors
from keras_bdl._backend import grad

# The prior "default", twice as wide as He's initial weights. With less width,
# predictions are too uncertain; with a wider one, they are worse under shift.
_BY_FAN_IN = priors.HeNormal(gain=8.0)
_OF_TABLES = priors.Normal(1.0)


def is_default(prior: Any) -> bool:
    """Returns whether the prior of a sampler is `"default"`."""
    return isinstance(prior, str) and prior == "default"


def prior_of(variable: Any, prior: Any) -> Any:
    """Returns the prior that a sampler adds for a variable, or `None`."""
    # Variables of TensorFlow have no regularizer.
    if getattr(variable, "regularizer", None) is not None:
        return None
    if is_default(prior):
        # A row of a table is an output by itself, not one of a sum of rows.
        is_table = variable.name in ("embeddings", "embeddings:0")
        prior = _OF_TABLES if is_table else _BY_FAN_IN
    # Subclasses may have another density.
    if type(prior) is priors.HeNormal:
        return prior.of_shape(variable.shape)
    return prior


def log_prior_gradient(prior: Any, value: Any) -> Any:
    """Returns the gradient of `log p` at the value of a variable."""
    if type(prior) is priors.Normal:  # two operations in place of ten
        distance = value - prior.mean if prior.mean else value
        return (-1.0 / prior.stddev**2) * distance
    return grad(lambda w: ops.sum(prior.log_prob(w)), [value])[0]
