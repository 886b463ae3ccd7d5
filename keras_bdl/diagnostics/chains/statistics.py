"""Autocorrelation, effective sample size and R-hat of several chains."""

import functools

import numpy as np

from keras_bdl.data.checked_inputs import check_count
from keras_bdl.diagnostics.chains.chain_arrays import check_chains
from keras_bdl.diagnostics.chains.chain_arrays import for_each_quantity


def autocorrelation(chains, max_lag: int | None = None):
    """Returns the correlation of draws that are k apart, of every chain.

        rho_k = sum_t (x_t - m) (x_{t+k} - m) / sum_t (x_t - m)^2         (1)

    with m the mean of the chain. Independent draws have rho_k within
    +-1.96 / sqrt(draws) in 95 % of the cases.

    Args:
        chains: Array of shape `(chains, draws, ...)`.
        max_lag: The largest k, below the number of draws. Defaults to
            `None`: 100, or half of the draws if these are fewer.

    Returns:
        Array of shape `(chains, max_lag + 1, ...)`; NaN for a chain that
        stands still.
    """
    chains = check_chains(chains, min_chains=1)
    draws = chains.shape[1]
    max_lag = min(100, draws // 2) if max_lag is None else max_lag
    check_count("max_lag", max_lag)
    if max_lag >= draws:
        raise ValueError(
            "`max_lag` must be below the number of draws, "
            f"{draws}. Received: max_lag={max_lag}"
        )
    products = lagged_products(chains.astype("float64"))[:, : max_lag + 1]
    moves = np.any(chains != chains[:, :1], axis=1, keepdims=True)
    variance = np.where(moves, products[:, :1], np.nan)
    return products / variance  # (1)


def lagged_products(chains):
    """Returns the numerator of (1) at all lags, `(chains, draws, ...)`."""
    draws = chains.shape[1]
    # Padded so far that the end does not meet the begin.
    length = 2 ** (2 * draws - 1).bit_length()
    spectrum = np.fft.rfft(
        chains - chains.mean(axis=1, keepdims=True), length, axis=1
    )
    power = np.square(np.abs(spectrum))
    return np.fft.irfft(power, length, axis=1)[:, :draws]


def effective_sample_size(chains):
    """Returns how many independent draws the draws of all chains are worth.

    The variance of the mean of S = chains * draws dependent draws is that of
    ESS independent ones,

        ESS = S / (1 + 2 sum_k (1 - k / draws) rho_k)                     (1)

    with the autocorrelation rho_k at lag k estimated from all chains. Their
    means disagree more than (1) explains where the chains have not mixed, and
    that lowers ESS, down to the number of chains. The sum ends before the
    first pair of lags whose autocorrelations add up to less than 0. ESS may
    exceed S, up to S log10 S: then the draws alternate around the mean.

    Args:
        chains: Array of shape `(chains, draws, ...)`, at least two chains of
            at least four draws.

    Returns:
        ESS of every quantity, with the shape of one draw.

    Reference:
        - [Vehtari et al., 2021](https://arxiv.org/abs/1903.08008), section
          3.2, without splitting the chains.
    """
    return for_each_quantity(_effective_size, check_chains(chains))


def _effective_size(block):
    # The estimate of `tfp.mcmc.effective_sample_size`, which logs a warning
    # with every call for float64.
    num_chains, draws = block.shape[:2]
    weights = 1 - np.arange(draws)[:, None] / draws
    # The mean over the `draws - k` products that there are at lag k.
    covariance = lagged_products(block).mean(axis=0) / draws / weights
    total = covariance[0] + block.mean(axis=1).var(axis=0, ddof=1)
    rho = 1 - (covariance[0] - covariance) / total
    pairs = np.stack([rho, weights * rho])[:, : draws - draws % 2]
    pairs, weighted = pairs.reshape(2, draws // 2, 2, -1).sum(axis=2)
    summed = np.logical_and.accumulate(pairs >= 0)
    inverse = 2 * np.sum(weighted, axis=0, where=summed) - 1  # (1)
    size = num_chains * draws
    # Alternating draws can make the estimate of the denominator 0 or less.
    return size / np.maximum(inverse, 1 / np.log10(size))


def potential_scale_reduction(chains, rank_normalized: bool = False):
    """Returns R-hat: 1 where chains agree, more where they do not.

    Every chain is split into its two halves, so that a chain that drifts
    disagrees with itself. With W the mean of the variances of the m halves of
    n draws each, and B / n the variance of their m means,

        R-hat = sqrt(((n - 1) / n W + B / n) / W)                         (1)

    It is about the factor by which the standard deviation would still shrink
    if the chains went on. Usual limits are 1.1 and, with many draws, 1.01. It
    is infinite, or huge, where no chain moves and they stand at different
    places.

    Args:
        chains: Array of shape `(chains, draws, ...)`, at least two chains of
            at least four draws. Of an odd number the first one is left out.
        rank_normalized: Whether to replace draws by the normal scores of
            their ranks, and to take the larger R-hat of the draws and of
            their distances from the median. It sees what (1) does not: chains
            of different variance, and heavy tails. Defaults to `False`.

    Returns:
        R-hat of every quantity, with the shape of one draw.

    Reference:
        - [Gelman and Rubin, 1992](https://doi.org/10.1214/ss/1177011136)
        - [Vehtari et al., 2021](https://arxiv.org/abs/1903.08008), sections
          3.1 and 4.
    """
    chains = check_chains(chains)
    statistic = functools.partial(_r_hat, rank_normalized=rank_normalized)
    return for_each_quantity(statistic, even_length(chains))


def even_length(chains):
    """Leaves out the first draw of an odd number of them."""
    return chains[:, chains.shape[1] % 2 :]


def _r_hat(block, rank_normalized):
    halves = np.concatenate(np.split(block, 2, axis=1))
    if not rank_normalized:
        return _scale_reduction(halves)
    distances = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.fmax(  # distances that are all the same have none
        _scale_reduction(_normal_scores(halves)),
        _scale_reduction(_normal_scores(distances)),
    )


def _scale_reduction(chains):
    # TFP's function of this name returns the square of (1), with a correction
    # that the usual limits do not know.
    n = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(((n - 1) / n * within + between) / within)  # (1)


def _normal_scores(chains):
    from scipy.special import ndtri
    from scipy.stats import rankdata

    pooled = chains.reshape(-1, chains.shape[-1])
    ranks = rankdata(pooled, axis=0)
    return ndtri((ranks - 0.375) / (len(pooled) + 0.25)).reshape(chains.shape)
