"""Table of several reports, with the differences that mean something."""

import dataclasses
from typing import Any

import numpy as np

from keras_bdl._reports._report import Report
from keras_bdl._reports._report import data_frame
from keras_bdl._reports._report import format_number

HIGH_IS_GOOD = (
    "accuracy",
    "auroc_correctness",
    "brier_resolution",
    "log_likelihood",
    "mean_iou",
)


@dataclasses.dataclass(frozen=True)
class ReportTable(Report):
    """Scores of several methods, from `keras_bdl.evaluation.table`.

    Attributes:
        names: Name of each method.
        num_reports: Number of reports of each method, one for each seed.
        level: Probability of the intervals.
        mean: Dict from a score to the mean over the seeds of each method.
        standard_error: Dict from a score to the standard error of `mean` over
            the seeds, NaN for a single seed.
        differences: Dict from a score to a list with a dict for each pair of
            methods: `first`, `second`, `difference` (first minus second), the
            ends `low` and `high` of its interval, and `means_something`,
            whether the interval excludes 0. A score without numbers of
            single examples, such as `mce`, or with infinite ones, has no entry.
        asked: The coverage that sets were asked for: the best coverage is the
            nearest. `None` for other reports.
    """

    names: list
    num_reports: list
    level: float
    mean: dict
    standard_error: dict
    differences: dict
    asked: float | None = None

    def title(self) -> str:
        """Returns the first line of the printed table."""
        return f"{len(self.names)} methods"

    def sections(self) -> list[tuple]:
        """Returns a pair of title and rows for each table."""
        marks = {score: self._as_good_as_best(score) for score in self.mean}
        header = ["", *self.mean]
        rows = [header]
        for i, name in enumerate(self.names):
            cells = [
                self._cell(score, i) + (" *" if i in marks[score] else "  ")
                for score in self.mean
            ]
            rows.append([name, *cells])
        title = "Mean"
        if max(self.num_reports) > 1:
            title += " ± standard error over the seeds"
        tables = [(title, rows)]
        if any(self.differences.values()):
            percent = f"{100 * self.level:g} %"
            tables[0] = (
                f"{title}; * best, or the interval of the difference to the "
                "best contains 0",
                rows,
            )
            tables.append(
                (
                    f"Difference to the best, {percent} interval over test "
                    "examples" + " and seeds" * (min(self.num_reports) > 1),
                    self._difference_rows(),
                )
            )
        return tables

    def to_frame(self) -> Any:
        """Returns a `pandas.DataFrame` with one row for each method.

        The score `nll` has the columns `"nll"` and `"nll_error"`, its standard
        error. Further columns compare with the best method, whose own entries
        are NaN: `"nll_difference"`, `"nll_low"`, `"nll_high"` and
        `"nll_means_something"`.
        """
        rows: list[dict] = [{} for _ in self.names]
        for score in self.mean:
            to_best = {other: e for other, *e in self._to_best(score)}
            for i, (name, row) in enumerate(zip(self.names, rows, strict=True)):
                row[score] = self.mean[score][i]
                row[f"{score}_error"] = self.standard_error[score][i]
                if score in self.differences:
                    entry = to_best.get(name, [np.nan] * 4)
                    for column, value in zip(_TO_BEST, entry, strict=True):
                        row[f"{score}_{column}"] = value
        return data_frame(rows, self.names)

    def _cell(self, score, i):
        text = format_number(self.mean[score][i])
        error = self.standard_error[score][i]
        if np.isnan(error):
            return text
        # As many decimals as the mean.
        end = format_number(error) if "e" in text else f"{error:.4f}"
        return f"{text} ± {end}"

    def _best(self, score):
        """Returns the position of the best method, or `None`."""
        mean = np.array(self.mean[score])
        if np.isnan(mean).all():
            return None
        if score == "coverage" and self.asked is not None:
            mean = np.abs(mean - self.asked)
        best = np.nanargmax if score in HIGH_IS_GOOD else np.nanargmin
        return int(best(mean))

    def _as_good_as_best(self, score):
        """Returns the positions of the methods that get a mark."""
        best = self._best(score)
        if best is None or score not in self.differences:
            return set()
        same = {
            self.names.index(name)
            for name, *_, means_something in self._to_best(score)
            if not means_something
        }
        return {best} | same

    def _to_best(self, score):
        """Returns name, difference, its interval and verdict of each other."""
        best, found = self._best(score), []
        for entry in (
            self.differences.get(score, ()) if best is not None else ()
        ):
            ends = entry["difference"], entry["low"], entry["high"]
            other, reference = entry["first"], entry["second"]
            if other == self.names[best]:
                other, reference = reference, other
                ends = -ends[0], -ends[2], -ends[1]
            if reference == self.names[best]:
                found.append((other, *ends, entry["means_something"]))
        return found

    def _difference_rows(self):
        rows: list = [["", "difference", "from", "to"]]
        for score in self.differences:
            for other, *ends, _ in self._to_best(score):
                label = f"{score}: {other} - {self.names[self._best(score)]}"
                rows.append([label, *ends])
        return rows


_TO_BEST = ("difference", "low", "high", "means_something")
