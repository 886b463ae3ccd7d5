"""Chains with known autocorrelation."""

import numpy as np


def ar1(phi, chains, draws, quantities, seed=0):
    """Stationary Gaussian chains of variance 1 with rho_k = phi^k."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(chains, draws, quantities))
    x = noise.copy()
    for t in range(1, draws):
        x[:, t] = phi * x[:, t - 1] + np.sqrt(1 - phi**2) * noise[:, t]
    return x
