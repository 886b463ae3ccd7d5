"""A test whether chains share the noise of their steps."""

import math
import warnings
from typing import Any

import numpy as np

# Independent chains exceed this number with a probability below exp(-5^2 / 2).
_LIMIT = 5.0
# Largest number of entries in a block. A block needs a few times 8 MiB.
_BLOCK = 2**20


class SharedSteps:
    """Tests whether the steps of chains are correlated.

    R-hat and ESS assume independent chains. Chains with the same noise agree
    with each other without having converged. For every quantity, let d_ct be
    step t of chain c, minus the mean step of the chain, and divided by the
    root mean square of all steps of the quantity. Let e_ct be d_ct minus the
    mean of d_{c,t-1} and d_{c,t+1}, so that a slow drift that all chains have
    in common cancels. The test sums over all quantities,

        u_ct = e_ct (d_1t + ... + d_{c-1,t})                              (1)
        z_c = sum_t u_ct / sqrt(tau_c sum_t u_ct^2)                       (2)
        z = sum_c z_c / sqrt(chains - 1)                                  (3)

    Let the chains be independent, and let each step be as likely as its
    negative, whatever the other steps. Then `z` has the tail of a Gaussian, by
    Hoeffding's inequality: `P(z > a) <= exp(-a^2 / 2)`, for any number and any
    correlation of the quantities. The factor tau_c, at least 1, is the
    variance of the sum in (2) if the steps of a chain depend on earlier ones,
    relative to independent steps. The warning needs `z > 5`, which has a
    probability below 4e-6. Short chains cannot exceed 5: two chains with the
    same noise need about 30 samples, three chains about 20.
    """

    def __init__(self) -> None:
        self._products: Any = None

    def add(self, chains: np.ndarray) -> None:
        """Adds quantities, an array of shape `(chains, samples, ...)`."""
        flat = chains.reshape(*chains.shape[:2], -1)
        size = max(1, _BLOCK // math.prod(flat.shape[:2]))
        for start in range(0, flat.shape[2], size):
            block = flat[..., start : start + size]
            self._add(np.ascontiguousarray(block, "float64"))

    def _add(self, block: np.ndarray) -> None:
        num_chains, samples = block.shape[:2]
        if self._products is None:
            self._identical = np.ones((num_chains, num_chains), bool)
            # Chains of few different values may be equal by chance.
            self._continuous = np.zeros(num_chains, bool)
            self._products = np.zeros((num_chains, num_chains))
            self._sums = np.zeros((num_chains - 1, samples - 1))
            self._lags = np.zeros((num_chains - 1, 2, samples - 1))
        self._identical &= np.all(block[:, None] == block, axis=(2, 3))
        ordered = np.diff(np.sort(block, axis=1), axis=1)
        self._continuous |= np.any(np.all(ordered > 0, axis=1), axis=1)
        steps = np.diff(block, axis=1)
        steps -= steps.mean(axis=1, keepdims=True)
        scale = np.sqrt(np.mean(np.square(steps), axis=(0, 1)))
        moving = scale > 1e-12 * np.abs(block).max(axis=(0, 1))
        steps = steps[..., moving] / scale[moving]
        flat = steps.reshape(num_chains, -1)
        self._products += flat @ flat.T
        earlier = np.zeros_like(steps[0])
        for c in range(1, num_chains):
            earlier += steps[c - 1]
            changes = _without_neighbours(steps[c])
            self._sums[c - 1] += np.sum(changes * earlier, axis=1)  # (1)
            self._lags[c - 1] += (
                _autocovariance(changes),
                _autocovariance(earlier),
            )

    @property
    def correlations(self) -> np.ndarray:
        """The correlations between the steps of all pairs of chains."""
        stddevs = np.sqrt(np.diag(self._products))
        with np.errstate(invalid="ignore"):  # a chain that does not move
            return self._products / np.outer(stddevs, stddevs)

    @property
    def largest_correlation(self) -> float:
        """The largest correlation between the steps of two chains."""
        pairs = self.correlations[np.triu_indices(len(self._products), 1)]
        pairs = pairs[np.isfinite(pairs)]
        return float(pairs.max()) if pairs.size else math.nan

    @property
    def z(self) -> float:
        """The statistic (3)."""
        found = []
        for sums, lags in zip(self._sums, self._lags, strict=True):
            squares = np.sum(np.square(sums))
            if not squares:
                continue
            product = np.prod(lags / lags[:, :1], axis=0)[1:]
            # Estimates below this number are noise.
            large = product > 2 / len(sums)
            tau = 1 + 2 * product[large].sum()
            found.append(sums.sum() / math.sqrt(tau * squares))  # (2)
        return float(sum(found)) / math.sqrt(len(self._sums))  # (3)

    @property
    def found(self) -> bool:
        """Whether chains are identical, or `z` exceeds its limit."""
        return self._pair_of_identical() is not None or bool(self.z > _LIMIT)

    def _pair_of_identical(self) -> Any:
        pairs = np.argwhere(np.triu(self._identical, 1))
        return next(((a, b) for a, b in pairs if self._continuous[a]), None)

    def warn(self, stacklevel: int) -> None:
        """Warns if the chains share their steps."""
        if not self.found:
            return
        pair = self._pair_of_identical()
        if pair is None:
            fact = "Steps of different chains are correlated"
            pairs = np.triu(np.nan_to_num(self.correlations), 1)
            a, b = np.unravel_index(np.argmax(pairs), pairs.shape)
            received = f"correlation {pairs[a, b]:.2f} of chains {a} and {b}"
        else:
            fact = "Different chains are identical"
            received = f"equal chains {pair[0]} and {pair[1]}"
        warnings.warn(
            f"{fact}, so R-hat is too low and ESS is too high. Give each chain "
            "noise and an order of the data of its own: call "
            "`keras.utils.set_random_seed` with another number before you make "
            "its model and its optimizer, and give no chain the `seed` or the "
            f"config of another. Received: {received}",
            stacklevel=stacklevel + 1,
        )


def warn_of_shared_steps(chains: np.ndarray, stacklevel: int) -> None:
    """Warns if chains share their steps."""
    shared = SharedSteps()
    shared.add(chains)
    shared.warn(stacklevel + 1)


def _without_neighbours(steps: Any) -> Any:
    """Returns each step minus the mean of the steps before and after it."""
    padded = np.concatenate([steps[1:2], steps, steps[-2:-1]])
    return steps - 0.5 * (padded[:-2] + padded[2:])


def _autocovariance(series: Any) -> Any:
    """Returns the autocovariances at all lags, summed over quantities."""
    length = 2 ** (2 * len(series) - 1).bit_length()
    spectrum = np.fft.rfft(series, length, axis=0)
    power = np.sum(np.square(np.abs(spectrum)), axis=1)
    return np.fft.irfft(power, length)[: len(series)]
