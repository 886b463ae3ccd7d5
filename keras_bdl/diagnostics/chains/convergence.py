"""Whether several chains have converged, as a report."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from keras_bdl.data.checked_inputs import check_count
from keras_bdl.diagnostics.chains.chain_arrays import check_chains
from keras_bdl.diagnostics.chains.chain_arrays import is_constant
from keras_bdl.diagnostics.chains.statistics import effective_sample_size
from keras_bdl.diagnostics.chains.statistics import even_length
from keras_bdl.diagnostics.chains.statistics import potential_scale_reduction
from keras_bdl.diagnostics.chains.weight_chains import WeightChains
from keras_bdl.random.counter_numbers import generator
from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True)
class ConvergenceReport(Report):
    """Effective sample size and R-hat by variable. Made by `convergence`.

    For each variable, or set of predictions, there are

    - `size`: how many quantities it has,
    - `entries`: how many of them were looked at,
    - `constant`: how many of these are the same in every draw of every
      chain; they say nothing, and the numbers below are of the others, NaN
      if there are none,
    - `r_hat_max`, `r_hat_median`: the highest and the median R-hat,
    - `share_below_1_01`, `share_below_1_1`: of quantities with a lower R-hat,
    - `ess_min`, `ess_median`: the lowest and the median ESS.

    Attributes:
        num_chains: Number of chains.
        num_draws: Number of draws of each.
        rank_normalized: Which R-hat it is, see `potential_scale_reduction`.
        max_entries: Most entries looked at of each variable, or `None`.
        seed: Selected them.
        variables: Dict from the name of a variable to its numbers.
        total: The numbers of all entries looked at.
        worst: The variable with the highest R-hat, or `None` if nothing
            varies.
    """

    num_chains: int
    num_draws: int
    rank_normalized: bool
    max_entries: int | None
    seed: int
    variables: dict
    total: dict
    worst: str | None

    def title(self) -> str:
        """Returns the first line."""
        return (
            f"Convergence of {self.num_chains} chains of {self.num_draws} "
            f"draws, {self.total['entries']} of {self.total['size']} "
            f"quantities{self._selection()}"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        rows = dict(self.variables)
        if len(rows) > 1:
            rows["all of these"] = self.total
        draws = self.num_chains * self.num_draws
        return [
            (
                f"R-hat, {self._kind()}",
                [
                    ["", "max", "median", "< 1.01", "< 1.1"],
                    *(_row(n, of, _R_HAT) for n, of in rows.items()),
                ],
            ),
            (
                f"Effective sample size, of {draws} draws",
                [
                    ["", "min", "median"],
                    *(_row(n, of, _ESS, "{:.1f}") for n, of in rows.items()),
                ],
            ),
            (
                "Quantities",
                [
                    ["", "in all", "looked at", "constant"],
                    *(_row(n, of, _COUNTS, "{}") for n, of in rows.items()),
                ],
            ),
            (self._verdict(), []),
        ]

    def _selection(self):
        if self.total["entries"] == self.total["size"]:
            return ""
        return (
            f", drawn at random: at most {self.max_entries} of each variable "
            f"(seed {self.seed})"
        )

    def _kind(self):
        ranks = "rank-normalised and folded, " if self.rank_normalized else ""
        return f"{ranks}split chains"

    def _verdict(self):
        if self.worst is None:
            return "Nothing varies"
        highest = self.variables[self.worst]["r_hat_max"]
        return f"Highest R-hat: {highest:.4f}, in {self.worst}"


_R_HAT = ("r_hat_max", "r_hat_median", "share_below_1_01", "share_below_1_1")
_ESS = ("ess_min", "ess_median")
_COUNTS = ("size", "entries", "constant")


def _row(label, numbers, names, form=None):
    """Returns a label and its cells, numbers or what `form` makes of them."""
    cells = [numbers[name] for name in names]
    return [
        label,
        *(
            c if form is None or math.isnan(c) else form.format(c)
            for c in cells
        ),
    ]


def convergence(
    chains,
    max_entries: int | None = 10_000,
    seed: int = 0,
    rank_normalized: bool = False,
) -> ConvergenceReport:
    """Tells whether several chains sample one distribution, and how well.

    Variables are read and judged one by one. Of an odd number of draws the
    first one is left out.

    Args:
        chains: `WeightChains`; or an array of shape `(chains, draws, ...)`,
            such as `prediction_chains` returns; or a dict of such arrays by
            name.
        max_entries: Most entries of a variable to look at; of one with more,
            these are drawn at random. `None`: all. Defaults to `10_000`.
        seed: Selects them. Defaults to `0`.
        rank_normalized: Which R-hat to use, see `potential_scale_reduction`.
            Defaults to `False`.

    Returns:
        A `ConvergenceReport`, which prints as a table.

    Example:

    ```python
    chains = [samples_1, samples_2, samples_3]
    p = keras_bdl.diagnostics.prediction_chains(chains, model, x_test)
    print(keras_bdl.diagnostics.convergence({"probabilities": p}))
    weights = keras_bdl.diagnostics.WeightChains(chains, model)
    print(keras_bdl.diagnostics.convergence(weights))
    ```
    """
    if max_entries is not None:
        check_count("max_entries", max_entries)
    if not isinstance(chains, (dict, WeightChains)):
        chains = {"quantities": chains}
    rng = generator(seed)
    lengths, found = {}, {}
    for name in chains:
        draws, size = _entries(chains, name, max_entries, rng)
        lengths[name] = draws.shape[:2]
        found[name] = _Found.of(draws, size, rank_normalized)
    variables = {name: one.numbers() for name, one in found.items()}
    num_chains, num_draws = _common(lengths)
    return ConvergenceReport(
        num_chains=num_chains,
        num_draws=num_draws,
        rank_normalized=rank_normalized,
        max_entries=max_entries,
        seed=seed,
        variables=variables,
        total=_Found.joined(found.values()).numbers(),
        worst=_worst(variables),
    )


class _Found(NamedTuple):
    """R-hat and ESS of what varies among some entries of a variable."""

    r_hat: np.ndarray
    ess: np.ndarray
    entries: int
    size: int

    @classmethod
    def of(cls, draws, size, rank_normalized):
        varying = draws[..., ~is_constant(draws)]
        r_hat = ess = np.zeros(0)
        if varying.size:
            r_hat = potential_scale_reduction(varying, rank_normalized)
            ess = effective_sample_size(varying)
        return cls(r_hat, ess, draws.shape[2], size)

    @classmethod
    def joined(cls, several):
        r_hat, ess, entries, size = zip(*several, strict=True)
        return cls(
            np.concatenate(r_hat), np.concatenate(ess), sum(entries), sum(size)
        )

    def numbers(self):
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


def _entries(chains, name, max_entries, rng):
    """Returns the entries of a variable to look at, and how many it has."""
    label = f"chains[{name!r}]"
    if isinstance(chains, WeightChains):
        size = math.prod(chains.shapes[name])
        draws = chains.entries(name, _positions(size, max_entries, rng))
        draws = check_chains(draws, label)
    else:
        draws = check_chains(chains[name], label)
        draws = draws.reshape(*draws.shape[:2], -1)
        size = draws.shape[2]
        draws = draws[..., _positions(size, max_entries, rng)]
    return even_length(draws), size


def _positions(size, max_entries, rng):
    if max_entries is None or size <= max_entries:
        return slice(None)
    return np.sort(rng.choice(size, max_entries, replace=False))


def _common(lengths):
    """Returns the number of chains and draws that all variables share."""
    if len(set(lengths.values())) != 1:
        raise ValueError(
            "`chains` must have at least one array, all of equally many "
            f"chains and draws. Received: (chains, draws) = {lengths}"
        )
    return next(iter(lengths.values()))


def _worst(variables):
    varying = [
        n for n, of in variables.items() if of["constant"] < of["entries"]
    ]
    return max(varying, key=lambda n: variables[n]["r_hat_max"], default=None)
