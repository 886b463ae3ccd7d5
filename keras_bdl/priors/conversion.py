"""Turns what a user gives as a prior into one."""

from keras_bdl.priors.prior import Prior
from keras_bdl.priors.tfp_distribution import TFPDistribution


def get(prior):
    """Returns a prior with `log_prob` and `sample`, or `None`.

    Args:
        prior: `None`, one of `keras_bdl.priors`, a distribution of TensorFlow
            Probability, which is wrapped in a `TFPDistribution`, or any other
            object with `log_prob` and `sample`.
    """
    if prior is None or isinstance(prior, Prior):
        return prior
    if isinstance(prior, type) or not _is_distribution(prior):
        raise ValueError(
            "`prior` must be `None`, one of `keras_bdl.priors`, such as "
            "`keras_bdl.priors.Normal(1.0)`, a distribution of TensorFlow "
            "Probability, or another object with `log_prob` and `sample`. "
            f"Received: prior={prior!r}"
        )
    from tensorflow_probability import distributions as tfd

    is_of_tfp = isinstance(prior, tfd.Distribution)
    return TFPDistribution(prior) if is_of_tfp else prior


def _is_distribution(x):
    return all(callable(getattr(x, m, None)) for m in ("log_prob", "sample"))
