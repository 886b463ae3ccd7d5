"""Effective sample size of several chains."""

import numpy as np

from keras_bdl.diagnostics.chains.autocorrelation import lagged_products
from keras_bdl.diagnostics.chains.chain_arrays import check_chains
from keras_bdl.diagnostics.chains.chain_arrays import for_each_quantity


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
    return for_each_quantity(_statistic, check_chains(chains))


def _statistic(block):
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
