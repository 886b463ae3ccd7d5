"""R-hat of several chains."""

import functools

import numpy as np

from keras_bdl.diagnostics.chains.chain_arrays import check_chains
from keras_bdl.diagnostics.chains.chain_arrays import for_each_quantity


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
    statistic = functools.partial(_statistic, rank_normalized=rank_normalized)
    return for_each_quantity(statistic, even_length(chains))


def even_length(chains):
    """Leaves out the first draw of an odd number of them."""
    return chains[:, chains.shape[1] % 2 :]


def _statistic(block, rank_normalized):
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
