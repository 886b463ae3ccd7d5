"""Report on the convergence of several chains."""

import dataclasses
import math

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
