"""Autocorrelation, effective sample size and R-hat of several chains."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl.diagnostics._shared_steps import warn_of_shared_steps


def autocorrelation(
    chains: ArrayLike, *, max_lag: int | None = None
) -> np.ndarray:
    """Returns the correlation of samples k steps apart, for every chain.

    Use it to see how many steps a sampler needs between independent samples.

        rho_k = sum_t (x_t - m) (x_{t+k} - m) / sum_t (x_t - m)^2         (1)

    with m the mean of the chain. For independent samples, rho_k lies within
    +-1.96 / sqrt(samples) in 95 % of the cases.

    Args:
        chains: Array of shape `(chains, samples, ...)`.
        max_lag: The largest k, below the number of samples. Defaults to
            `None`: the smaller of 100 and half the number of samples.

    Returns:
        Array of shape `(chains, max_lag + 1, ...)`, NaN for a constant chain.

    Example:

    ```python
    chains = np.random.default_rng(0).normal(size=(2, 100, 3))
    keras_bdl.extend.autocorrelation(chains, max_lag=10)
    ```
    """
    chains = check_chains(chains, min_chains=1)
    samples = chains.shape[1]
    max_lag = min(100, samples // 2) if max_lag is None else max_lag
    check_count("max_lag", max_lag)
    if max_lag >= samples:
        raise ValueError(
            "`max_lag` must be below the number of samples, "
            f"{samples}. Received: max_lag={max_lag}"
        )
    products = lagged_products(chains.astype("float64"))[:, : max_lag + 1]
    moves = np.any(chains != chains[:, :1], axis=1, keepdims=True)
    variance = np.where(moves, products[:, :1], np.nan)
    return products / variance  # (1)


def lagged_products(chains: np.ndarray) -> np.ndarray:
    """Returns the numerator of (1) of `autocorrelation` at all lags.

    The result has the shape of `chains`, with the lags on axis 1.
    """
    samples = chains.shape[1]
    # The padding keeps the end of a chain apart from its beginning.
    length = 2 ** (2 * samples - 1).bit_length()
    spectrum = np.fft.rfft(
        chains - chains.mean(axis=1, keepdims=True), length, axis=1
    )
    power = np.square(np.abs(spectrum))
    return np.fft.irfft(power, length, axis=1)[:, :samples]


def effective_sample_size(chains: ArrayLike) -> np.ndarray:
    """Returns the effective sample size (ESS) of all chains together.

    Use it to judge the accuracy of averages over the samples. The mean of
    S = chains * samples dependent samples has the same variance as the mean of
    ESS independent samples,

        ESS = S / (1 + 2 sum_k (1 - k / samples) rho_k)                   (1)

    with the autocorrelation rho_k at lag k estimated from all chains. If the
    chains have not mixed, the means of the chains differ. The estimated rho_k
    are then larger at all lags, and ESS falls, at worst to about the number of
    chains. If chains share their noise, ESS is too high, and the function
    warns. The sum ends before the first pair of lags whose autocorrelations
    add up to less than 0. ESS may exceed S, up to S log10 S, if the samples
    alternate around the mean.

    Args:
        chains: Array of shape `(chains, samples, ...)`, at least two chains of
            at least four samples.

    Returns:
        ESS of every quantity, in the shape of one sample.

    Example:

    ```python
    chains = np.random.default_rng(0).normal(size=(2, 100, 3))
    keras_bdl.extend.effective_sample_size(chains)
    ```

    Reference:
        - [Vehtari et al., 2021](https://arxiv.org/abs/1903.08008), section
          3.2, without splitting the chains.
    """
    chains = check_chains(chains)
    warn_of_shared_steps(chains, stacklevel=2)
    return sample_size_of(chains)


def sample_size_of(chains: np.ndarray) -> np.ndarray:
    """Returns `effective_sample_size` of checked chains, without a warning."""
    return for_each_quantity(_effective_size, chains)


def _effective_size(block: np.ndarray) -> Any:
    # This is the estimate of `tfp.mcmc.effective_sample_size`. TFP's function
    # logs a warning in every call with float64.
    num_chains, samples = block.shape[:2]
    weights = 1 - np.arange(samples)[:, None] / samples
    # The mean over the `samples - k` products at lag k.
    covariance = lagged_products(block).mean(axis=0) / samples / weights
    total = covariance[0] + block.mean(axis=1).var(axis=0, ddof=1)
    rho = 1 - (covariance[0] - covariance) / total
    pairs = np.stack([rho, weights * rho])[:, : samples - samples % 2]
    pairs, weighted = pairs.reshape(2, samples // 2, 2, -1).sum(axis=2)
    summed = np.logical_and.accumulate(pairs >= 0)
    inverse = 2 * np.sum(weighted, axis=0, where=summed) - 1  # (1)
    size = num_chains * samples
    # Alternating samples can make the estimated denominator 0 or less.
    return size / np.maximum(inverse, 1 / np.log10(size))


def potential_scale_reduction(
    chains: ArrayLike, *, rank_normalized: bool = False
) -> np.ndarray:
    """Returns R-hat, which is near 1 if chains agree and larger if they differ.

    Use it to test whether several chains have converged. Every chain is split
    into two halves. If a chain drifts, its halves differ, and R-hat detects the
    drift. With W the mean of the variances of the m halves of n samples each,
    and B / n the variance of their m means,

        R-hat = sqrt(((n - 1) / n W + B / n) / W)                         (1)

    R-hat estimates the factor by which longer chains could still reduce the
    standard deviation. Usual limits are 1.1 and, with many samples, 1.01. If
    chains share their noise, R-hat is too low, and the function warns. R-hat
    is infinite or very large if each chain is constant and the chains differ.

    Args:
        chains: Array of shape `(chains, samples, ...)`, at least two chains of
            at least four samples. If the number of samples is odd, the function
            leaves out the first sample of each chain.
        rank_normalized: Whether to replace samples by the normal scores of
            their ranks. The result is then the larger of two R-hats: of the
            samples, and of the distances of the samples from the median. This
            version also detects chains of different variance and heavy tails.
            Defaults to `False`.

    Returns:
        R-hat of every quantity, in the shape of one sample.

    Example:

    ```python
    chains = np.random.default_rng(0).normal(size=(2, 100, 3))
    keras_bdl.extend.potential_scale_reduction(chains)
    ```

    Reference:
        - [Gelman and Rubin, 1992](https://doi.org/10.1214/ss/1177011136)
        - [Vehtari et al., 2021](https://arxiv.org/abs/1903.08008), sections
          3.1 and 4.
    """
    check_bool("rank_normalized", rank_normalized)
    chains = check_chains(chains)
    warn_of_shared_steps(chains, stacklevel=2)
    return scale_reduction_of(chains, rank_normalized)


def scale_reduction_of(chains: np.ndarray, rank_normalized: bool) -> np.ndarray:
    """Returns the R-hat of checked chains, without a warning."""
    statistic = functools.partial(_r_hat, rank_normalized=rank_normalized)
    return for_each_quantity(statistic, even_length(chains))


def even_length(chains: np.ndarray) -> np.ndarray:
    """Returns chains without their first sample if the length is odd."""
    return chains[:, chains.shape[1] % 2 :]


def _r_hat(block: np.ndarray, rank_normalized: Any) -> Any:
    halves = np.concatenate(np.split(block, 2, axis=1))
    if not rank_normalized:
        return _scale_reduction(halves)
    distances = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.fmax(  # R-hat of equal distances is NaN
        _scale_reduction(_normal_scores(halves)),
        _scale_reduction(_normal_scores(distances)),
    )


def _scale_reduction(chains: np.ndarray) -> Any:
    # TFP's function of this name returns the square of (1), with a correction
    # that does not fit the usual limits.
    n = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(((n - 1) / n * within + between) / within)  # (1)


def _normal_scores(chains: np.ndarray) -> Any:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    pooled = chains.reshape(-1, chains.shape[-1])
    ranks = rankdata(pooled, axis=0)
    return ndtri((ranks - 0.375) / (len(pooled) + 0.25)).reshape(chains.shape)


MIN_SAMPLES = 4  # two in each half
# Largest number of entries in a block. A block needs a few times 8 MiB.
_BLOCK = 2**20


def check_chains(
    chains: ArrayLike, name: str = "chains", *, min_chains: int = 2
) -> np.ndarray:
    """Returns chains as an array of shape `(chains, samples, ...)`."""
    try:
        array = np.asarray(chains)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.isbuiltin == 2:  # such as bfloat16
        array = array.astype("float32")
    if (
        array.dtype.kind not in "fiub"
        or array.ndim < 2
        or not array.size
        or array.shape[0] < min_chains
        or array.shape[1] < MIN_SAMPLES
    ):
        raise ValueError(
            f"`{name}` must be an array of numbers of shape (chains, samples, "
            f"...), with at least {min_chains} chains of equal length and at "
            f"least {MIN_SAMPLES} samples. Run more chains, each with its own "
            f"`seed`, or longer chains. Received: {_received(array)}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"`{name}` must be finite. Remove chains that diverged. "
            "Received: NaN or infinity in chain "
            f"{[c for c, x in enumerate(array) if not np.isfinite(x).all()]}"
        )
    return array


def is_constant(chains: np.ndarray) -> np.ndarray:
    """Returns a mask of the quantities that never vary in any chain."""
    return np.all(chains == chains[:1, :1], axis=(0, 1))


def for_each_quantity(
    statistic: Callable[[np.ndarray], np.ndarray], chains: np.ndarray
) -> np.ndarray:
    """Returns a statistic of every quantity, in the shape of one sample."""
    shape = chains.shape[2:]
    flat = chains.reshape(*chains.shape[:2], -1)
    step = max(1, _BLOCK // math.prod(flat.shape[:2]))
    values = []
    for start in range(0, flat.shape[2], step):
        block = flat[..., start : start + step].astype("float64")
        _check_moves(block, start, shape)
        values.append(statistic(block))
    return np.concatenate(values).reshape(shape)[()]


def quantity(
    chains: np.ndarray, entry: int | tuple[int, ...] | None = None
) -> np.ndarray:
    """Returns one quantity of every chain, of shape `(chains, samples)`."""
    shape = chains.shape[2:]
    if entry is None and math.prod(shape) == 1:
        return chains.reshape(chains.shape[:2])
    place = entry if isinstance(entry, tuple) else (entry,)
    try:
        one = np.empty(shape)[place].ndim == 0
    except (IndexError, TypeError):
        one = False
    if entry is None or not one:
        raise ValueError(
            "`entry` must be the index of one quantity, an integer or a tuple "
            f"of integers, in samples of shape {shape}. "
            f"Received: entry={entry!r}"
        )
    return chains[(slice(None), slice(None), *place)]


def _check_moves(block: np.ndarray, start: Any, shape: Any) -> None:
    constant = np.flatnonzero(is_constant(block))
    if constant.size:
        place = np.unravel_index(start + constant[0], shape) if shape else ()
        raise ValueError(
            "`chains` must hold quantities that vary. A constant quantity "
            "contains no information about convergence. Remove it. Received: "
            f"quantity {tuple(map(int, place))}, "
            f"always {block[0, 0, constant[0]]:g}"
        )


def _received(array: np.ndarray) -> str:
    if array.dtype.kind not in "fiub":
        return "rows of different lengths, or values that are no numbers"
    return f"chains of shape {array.shape}"
