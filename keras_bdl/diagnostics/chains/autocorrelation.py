"""Autocorrelation of each of several chains."""

import numpy as np

from keras_bdl.data.checked_inputs import check_count
from keras_bdl.diagnostics.chains.chain_arrays import check_chains


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
