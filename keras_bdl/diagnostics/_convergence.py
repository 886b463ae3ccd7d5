"""Convergence of several chains: R-hat and effective sample size."""

import dataclasses
import math
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._random._seeds import generator
from keras_bdl._reports import Report
from keras_bdl.diagnostics._chains import WeightChains
from keras_bdl.diagnostics._r_hat_and_ess import check_chains
from keras_bdl.diagnostics._r_hat_and_ess import even_length
from keras_bdl.diagnostics._r_hat_and_ess import is_constant
from keras_bdl.diagnostics._r_hat_and_ess import sample_size_of
from keras_bdl.diagnostics._r_hat_and_ess import scale_reduction_of
from keras_bdl.diagnostics._shared_steps import SharedSteps


@dataclasses.dataclass(frozen=True)
class ConvergenceReport(Report):
    """R-hat and effective sample size by variable, made by `convergence`.

    For each variable, or set of predictions, the report has

    - `size`: number of quantities (weights, or entries of the predictions),
    - `entries`: number of quantities examined,
    - `constant`: number of examined quantities that are equal in all samples
      of all chains. The numbers below are computed without the constant
      quantities. If all quantities are constant, the numbers are NaN,
    - `r_hat_max`, `r_hat_median`: the highest and the median R-hat,
    - `share_below_1_01`, `share_below_1_1`: share of the quantities whose R-hat
      is below 1.01 and below 1.1,
    - `ess_min`, `ess_median`: the lowest and the median effective sample size.

    Attributes:
        num_chains: Number of chains.
        num_samples: Number of samples of each chain.
        rank_normalized: Whether R-hat is rank-normalised, see
            `potential_scale_reduction`.
        max_entries: Largest number of quantities examined per variable, or
            `None`.
        seed: Seed of the random choice of quantities.
        variables: Dict from the name of a variable to its numbers.
        total: The numbers over all examined quantities.
        worst: The variable with the highest R-hat, or `None` if no quantity
            varies.
        step_correlation: The largest correlation between the steps of two
            chains, over all examined quantities.
        share_steps: Whether this correlation is more than chance, so that
            R-hat is too low and ESS is too high.
    """

    num_chains: int
    num_samples: int
    rank_normalized: bool
    max_entries: int | None
    seed: int
    variables: dict
    total: dict
    worst: str | None
    step_correlation: float
    share_steps: bool

    def title(self) -> str:
        return (
            f"Convergence of {self.num_chains} chains of {self.num_samples} "
            f"samples, {self.total['entries']} of {self.total['size']} "
            f"quantities{self._selection()}"
        )

    def sections(self) -> list:
        rows = dict(self.variables)
        if len(rows) > 1:
            rows["all of these"] = self.total
        samples = self.num_chains * self.num_samples
        return [
            (
                f"R-hat, {self._kind()}",
                [
                    ["", "max", "median", "< 1.01", "< 1.1"],
                    *(_row(n, of, _R_HAT) for n, of in rows.items()),
                ],
            ),
            (
                f"Effective sample size, of {samples} samples",
                [
                    ["", "min", "median"],
                    *(_row(n, of, _ESS, "{:.1f}") for n, of in rows.items()),
                ],
            ),
            (
                "Quantities",
                [
                    ["", "in all", "examined", "constant"],
                    *(_row(n, of, _COUNTS, "{}") for n, of in rows.items()),
                ],
            ),
            (self._verdict(), []),
        ]

    def _selection(self) -> str:
        if self.total["entries"] == self.total["size"]:
            return ""
        return (
            f", chosen at random: at most {self.max_entries} of each variable "
            f"(seed {self.seed})"
        )

    def _kind(self) -> str:
        ranks = "rank-normalised and folded, " if self.rank_normalized else ""
        return f"{ranks}split chains"

    def _verdict(self) -> Any:
        if self.worst is None:
            return "No quantity varies"
        highest = self.variables[self.worst]["r_hat_max"]
        verdict = f"Highest R-hat: {highest:.4f}, in {self.worst}"
        if not self.share_steps:
            return verdict
        return (
            f"{verdict}\n\nThe chains are not independent: their steps have "
            f"correlations of up to {self.step_correlation:.2f}. R-hat is too "
            "low and ESS is too high"
        )


_R_HAT = ("r_hat_max", "r_hat_median", "share_below_1_01", "share_below_1_1")
_ESS = ("ess_min", "ess_median")
_COUNTS = ("size", "entries", "constant")


def _row(
    label: Any, numbers: Any, names: tuple[str, ...], form: Any = None
) -> list:
    """Returns a label and its cells, as numbers or as strings of `form`."""
    cells = [numbers[name] for name in names]
    return [
        label,
        *(
            c if form is None or math.isnan(c) else form.format(c)
            for c in cells
        ),
    ]


def convergence(
    chains: WeightChains | dict[str, ArrayLike] | ArrayLike,
    *,
    max_entries: int | None = 10_000,
    seed: int = 0,
    rank_normalized: bool = False,
) -> ConvergenceReport:
    """Reports whether several chains sample the same distribution.

    Use it after training with a sampler, first on predictions and then on
    weights. R-hat near 1 means that the chains agree. The function reads one
    variable at a time. If the number of samples is odd, the function leaves out
    the first sample of each chain.

    R-hat and ESS assume independent chains. The function warns if chains are
    identical, or if their steps are correlated. Let z be the sum of the
    products of simultaneous steps, divided by its standard error. Independent
    chains whose steps are as likely as their negatives have
    `P(z > a) <= exp(-a^2 / 2)`. The warning needs `z > 5`. Two chains with the
    same noise reach this limit with about 30 samples, three chains with about
    20.

    Args:
        chains: `WeightChains`; or an array of shape `(chains, samples, ...)`,
            such as the result of `prediction_chains`; or a dict of such arrays
            by name.
        max_entries: Largest number of quantities to examine in a variable. The
            quantities of a larger variable are chosen at random. `None`
            examines all. Defaults to `10_000`.
        seed: Seed of the random choice. Defaults to `0`.
        rank_normalized: Whether to use the rank-normalised R-hat, see
            `potential_scale_reduction`. Defaults to `False`.

    Returns:
        A `ConvergenceReport`, which prints as a table.

    Example:

    ```python
    chains = [posterior, another_posterior]
    p = keras_bdl.diagnostics.prediction_chains(chains, model, x_test)
    print(keras_bdl.diagnostics.convergence({"probabilities": p}))
    weights = keras_bdl.extend.WeightChains(chains, model)
    print(keras_bdl.diagnostics.convergence(weights))
    ```
    """
    if max_entries is not None:
        check_count("max_entries", max_entries)
    check_bool("rank_normalized", rank_normalized)
    if not isinstance(chains, (dict, WeightChains)):
        chains = {"quantities": chains}
    rng = generator(seed)
    lengths, found = {}, {}
    shared: dict[tuple[int, int], SharedSteps] = {}
    for name in chains:
        samples, size = _entries(chains, name, max_entries, rng)
        lengths[name] = samples.shape[:2]
        found[name] = _Found.of(samples, size, rank_normalized)
        shared.setdefault(samples.shape[:2], SharedSteps()).add(samples)
    variables = {name: one.numbers() for name, one in found.items()}
    num_chains, num_samples = _common(lengths)
    steps = shared[num_chains, num_samples]
    steps.warn(stacklevel=2)
    return ConvergenceReport(
        num_chains=num_chains,
        num_samples=num_samples,
        rank_normalized=rank_normalized,
        max_entries=max_entries,
        seed=seed,
        variables=variables,
        total=_Found.joined(found.values()).numbers(),
        worst=_worst(variables),
        step_correlation=steps.largest_correlation,
        share_steps=steps.found,
    )


class _Found(NamedTuple):
    """R-hat and ESS of those examined entries of a variable that vary."""

    r_hat: np.ndarray
    ess: np.ndarray
    entries: int
    size: int

    @classmethod
    def of(cls, samples: Any, size: int, rank_normalized: Any) -> Any:
        varying = samples[..., ~is_constant(samples)]
        r_hat = ess = np.zeros(0)
        if varying.size:
            r_hat = scale_reduction_of(varying, rank_normalized)
            ess = sample_size_of(varying)
        return cls(r_hat, ess, samples.shape[2], size)

    @classmethod
    def joined(cls, several: Any) -> Any:
        r_hat, ess, entries, size = zip(*several, strict=True)
        return cls(
            np.concatenate(r_hat), np.concatenate(ess), sum(entries), sum(size)
        )

    def numbers(self) -> dict[str, Any]:
        r_hat, ess = self.r_hat, self.ess
        if not r_hat.size:
            r_hat = ess = np.full(1, np.nan)
        below = {
            f"share_below_{name}": float(np.mean(r_hat < limit))
            for name, limit in (("1_01", 1.01), ("1_1", 1.1))
        }
        return {
            "size": self.size,
            "entries": self.entries,
            "constant": self.entries - self.r_hat.size,
            "r_hat_max": float(r_hat.max()),
            "r_hat_median": float(np.median(r_hat)),
            **(below if self.r_hat.size else dict.fromkeys(below, math.nan)),
            "ess_min": float(ess.min()),
            "ess_median": float(np.median(ess)),
        }


def _entries(
    chains: Any, name: str, max_entries: Any, rng: np.random.Generator
) -> Any:
    """Returns the entries of a variable to examine, and its size."""
    label = f"chains[{name!r}]"
    if isinstance(chains, WeightChains):
        size = math.prod(chains.shapes[name])
        samples = chains.entries(name, _positions(size, max_entries, rng))
        samples = check_chains(samples, label)
    else:
        samples = check_chains(chains[name], label)
        samples = samples.reshape(*samples.shape[:2], -1)
        size = samples.shape[2]
        samples = samples[..., _positions(size, max_entries, rng)]
    return even_length(samples), size


def _positions(size: int, max_entries: Any, rng: np.random.Generator) -> Any:
    if max_entries is None or size <= max_entries:
        return slice(None)
    return np.sort(rng.choice(size, max_entries, replace=False))


def _common(lengths: Any) -> Any:
    """Returns the number of chains and samples that all variables share."""
    if len(set(lengths.values())) != 1:
        raise ValueError(
            "`chains` must have at least one array, and all arrays equally "
            "many chains and samples. "
            f"Received: (chains, samples) = {lengths}"
        )
    return next(iter(lengths.values()))


def _worst(variables: Any) -> Any:
    varying = [
        n for n, of in variables.items() if of["constant"] < of["entries"]
    ]
    return max(varying, key=lambda n: variables[n]["r_hat_max"], default=None)
