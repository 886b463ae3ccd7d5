"""Several reports side by side."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_seed
from keras_bdl._reports import Report
from keras_bdl._reports import data_frame
from keras_bdl._reports import format_number

# With fewer examples, the percentile interval is too narrow.
FEWEST_EXAMPLES = 20


def table(
    reports: Sequence[Report] | Mapping[str, Any],
    *,
    scores: Sequence[str] | None = None,
    level: float = 0.95,
    repeats: int = 2000,
    seed: int = 0,
) -> "ReportTable":
    """Compares reports on the same test examples.

    Use it to see which method is better, and which differences could be
    chance. A paired bootstrap draws the test examples anew, the same ones for
    all methods, and gives an interval for each difference of two means.

    With several seeds, the interval also covers the choice of the seeds. Each
    resample adds a number from Student's t distribution. Its scale is the
    standard error of the difference over the seeds. A method with one seed is
    taken to vary as much as the other one. With one seed of both, a difference
    is about the two trained networks, and another training may give another
    sign. Intervals are not corrected for their number: of 20 differences that
    are chance, one excludes 0 at the level 0.95. With fewer than 20 test
    examples, no difference means something: the intervals are too narrow.

    A calibration error of few examples is too large by chance, and more so in
    a resample. Its intervals are wider by this difference of both methods, and
    reach as far in both directions as the resamples in one. Those of the area
    under the risk-coverage curve use its first-order change with each example,
    and are somewhat narrow for few: of 100 differences that are chance, about
    8 exclude 0 at the level 0.95 with 100 examples, and 6 with 300.

    The labels, tokens or pixels of one example depend on each other. So a
    resample draws whole examples, the rows of the first axis, for every kind
    of report. A single long sequence is one example.

    Args:
        reports: Dict from the name of a method to its report, or to a list of
            reports, one for each seed. In a list of reports, the names are
            "1", "2", ... Reports are those of `keras_bdl.evaluate`, of
            `SegmentationScores`, or of sets and intervals in
            `keras_bdl.conformal` that were asked for the same coverage.
        scores: Names of numbers in the reports. Defaults to `None`: accuracy,
            nll, brier, ece and aurc of classes; rmse, log_likelihood and crps
            of a regression; accuracy, mean_iou, nll, brier and ece of a
            segmentation; coverage and mean_size of sets.
        level: Probability of the intervals. Defaults to `0.95`.
        repeats: Number of resamples, or 0 for no intervals. Defaults to
            `2000`.
        seed: Seed of the resamples. Defaults to `0`.

    Returns:
        A `ReportTable`. Print it, or use `to_dict` or `to_frame`.

    Example:

    ```python
    q = keras_bdl.predict(model, x_test, posterior)
    table = keras_bdl.evaluation.table(
        {
            "ensemble": keras_bdl.evaluate(q, y_test),
            "other": keras_bdl.evaluate(prediction, y_test),
        }
    )
    print(table)
    ```

    Reference:
        - Efron and Tibshirani, 1993, An introduction to the bootstrap,
          section 13.3, the percentile interval
    """
    check_number("level", level, above=0.0, below=1.0)
    check_count("repeats", repeats, at_least=0)
    check_seed(seed)
    methods = _by_name(reports)
    scores = _checked_scores(scores, methods)
    values = {
        score: [
            [float(r[score]) for r in several] for several in methods.values()
        ]
        for score in scores
    }
    differences = {}
    if repeats and len(methods) > 1:
        _check_examples(methods)
        kept = [score for score in scores if _kept(methods, score)]
        resamples = _resamples(methods, kept, repeats, seed) if kept else {}
        differences = {
            score: _differences(
                list(methods), values[score], resamples[score], level, seed
            )
            for score in kept
        }
    return ReportTable(
        names=list(methods),
        num_reports=[len(several) for several in methods.values()],
        level=level,
        asked=_asked(methods),
        mean={
            score: [float(np.mean(v)) for v in of_methods]
            for score, of_methods in values.items()
        },
        standard_error={
            score: [_standard_error(v) for v in of_methods]
            for score, of_methods in values.items()
        },
        differences=differences,
    )


def _by_name(reports: Any) -> dict[str, list]:
    """Returns a list of reports for each name, after a check."""
    if isinstance(reports, (list, tuple)):
        reports = {str(i): report for i, report in enumerate(reports, 1)}
    if not isinstance(reports, Mapping) or not reports:
        raise ValueError(
            "`reports` must be a list of reports, or a dict from a name to a "
            f"report or a list of reports. Received: {type(reports).__name__}"
        )
    methods = {
        str(name): list(value) if isinstance(value, (list, tuple)) else [value]
        for name, value in reports.items()
    }
    kinds = {type(r) for several in methods.values() for r in several}
    if (
        not all(methods.values())
        or len(kinds) != 1
        or not all(getattr(kind, "TABLE_SCORES", ()) for kind in kinds)
    ):
        raise ValueError(
            "`reports` must hold reports of one kind on predictions, such as "
            "those from `keras_bdl.evaluate`, at least one for each name. "
            f"Received: {sorted(kind.__name__ for kind in kinds)}"
        )
    return methods


def _asked(methods: dict[str, list]) -> float | None:
    """Returns the coverage that all sets were asked for, or `None`."""
    asked = {
        report.level
        for several in methods.values()
        for report in several
        if "coverage" in report.TABLE_SCORES
    }
    if len(asked) > 1:
        raise ValueError(
            "`reports` must be on sets of one coverage. Call `fit` with the "
            f"same `coverage`. Received: {sorted(asked)}"
        )
    return asked.pop() if asked else None


def _checked_scores(
    scores: Sequence[str] | None, methods: dict[str, list]
) -> tuple[str, ...]:
    report = next(iter(methods.values()))[0]
    if scores is None:
        return report.TABLE_SCORES
    numbers = [k for k, v in report.to_dict().items() if isinstance(v, float)]
    if isinstance(scores, str):
        scores = (scores,)
    wrong = [score for score in scores if score not in numbers]
    if wrong or not scores:
        raise ValueError(
            f"`scores` must be names among {', '.join(numbers)}. "
            f"Received: scores={scores!r}"
        )
    return tuple(scores)


def _check_examples(methods: dict[str, list]) -> None:
    checksums = {
        name: {report.per_example.checksum for report in several}
        for name, several in methods.items()
    }
    if len(set.union(*checksums.values())) > 1:
        first = next(iter(checksums.values()))
        other = [name for name, found in checksums.items() if found != first]
        raise ValueError(
            "`reports` must be on the same test examples in the same order, "
            "which the paired bootstrap needs. Pass `repeats=0` for a table "
            "without intervals. Received: other labels in "
            f"{other or list(checksums)}"
        )


def _kept(methods: dict[str, list], score: str) -> bool:
    """Returns whether reports hold finite numbers of examples for a score."""
    return all(
        score in report.per_example.scores
        and np.isfinite(report.per_example.scores[score]).all()
        for several in methods.values()
        for report in several
    )


def _resamples(
    methods: dict[str, list], scores: list[str], repeats: int, seed: int
) -> dict[str, tuple]:
    """Returns deviations of resampled scores, their bias, and the examples.

    Deviations and biases are lists with one entry for each method.
    """
    kept = [
        (score, i, report.per_example)
        for score in scores
        for i, several in enumerate(methods.values())
        for report in several
    ]
    count = len(next(iter(kept[0][2].scores.values())))
    widths: list[int] = []

    def sums(unit: np.ndarray, num_units: int) -> np.ndarray:
        columns = [p.sums(score, unit, num_units) for score, _, p in kept]
        widths.extend(part.shape[1] for part in columns)
        return np.concatenate(columns, 1)

    means = bootstrap_means(sums, count, repeats=repeats, seed=seed)
    ends = np.cumsum(widths)[:-1]
    parts = [np.split(m, ends, axis=-1) for m in means]
    found: dict[str, list] = {score: [[] for _ in methods] for score in scores}
    biased = {}
    for (score, i, p), whole, resampled in zip(kept, *parts, strict=True):
        deviation = p.score(score, resampled) - p.score(score, whole)
        found[score][i].append(deviation)
        biased[score] = p.is_biased(score)
    return {
        score: ([np.mean(d, axis=0) for d in several], biased[score], count)
        for score, several in found.items()
    }


def _differences(
    names: list[str],
    values: list[list[float]],
    resampled: tuple,
    level: float,
    seed: int,
) -> list[dict]:
    deviations, biased, count = resampled
    rng = np.random.default_rng([seed, 1])
    tails = (1 - level) / 2, (1 + level) / 2
    entries = []
    for i, first in enumerate(names):
        for j, second in list(enumerate(names))[i + 1 :]:
            deviation = deviations[i] - deviations[j]
            scale, freedom = _error_of_seeds(values[i], values[j])
            if freedom:
                noise = rng.standard_t(freedom, len(deviation))
                deviation = deviation + scale * noise
            low, high = np.quantile(deviation, tails)
            if biased:
                bias = abs(deviations[i].mean()) + abs(deviations[j].mean())
                low, high = min(low, -high) - bias, max(high, -low) + bias
            difference = float(np.mean(values[i]) - np.mean(values[j]))
            low, high = difference + low, difference + high
            entries.append(
                {
                    "first": first,
                    "second": second,
                    "difference": difference,
                    "low": float(low),
                    "high": float(high),
                    "means_something": bool(low > 0 or high < 0)
                    and count >= FEWEST_EXAMPLES,
                }
            )
    return entries


def _error_of_seeds(
    first: list[float], second: list[float]
) -> tuple[float, int]:
    """Returns the standard error of a difference, and its degrees of freedom.

    A method with a single seed is taken to vary as the other one does. With
    two single seeds, both results are 0: nothing is known.
    """
    freedom = len(first) + len(second) - 2
    if not freedom:
        return 0.0, 0
    if min(len(first), len(second)) > 1:
        scale = np.hypot(_standard_error(first), _standard_error(second))
        return scale, freedom
    several = first if len(first) > 1 else second
    inverse = 1 / len(first) + 1 / len(second)
    return np.std(several, ddof=1) * np.sqrt(inverse), freedom


def _standard_error(values: list[float]) -> float:
    if len(values) < 2:
        return np.nan
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


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

    def _cell(self, score: str, i: int) -> str:
        text = format_number(self.mean[score][i])
        error = self.standard_error[score][i]
        if np.isnan(error):
            return text
        # As many decimals as the mean.
        end = format_number(error) if "e" in text else f"{error:.4f}"
        return f"{text} ± {end}"

    def _best(self, score: str) -> Any:
        """Returns the position of the best method, or `None`."""
        mean = np.array(self.mean[score])
        if np.isnan(mean).all():
            return None
        if score == "coverage" and self.asked is not None:
            mean = np.abs(mean - self.asked)
        best = np.nanargmax if score in HIGH_IS_GOOD else np.nanargmin
        return int(best(mean))

    def _as_good_as_best(self, score: str) -> set[int]:
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

    def _to_best(self, score: str) -> list[tuple]:
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

    def _difference_rows(self) -> list[list]:
        rows: list = [["", "difference", "from", "to"]]
        for score in self.differences:
            for other, *ends, _ in self._to_best(score):
                label = f"{score}: {other} - {self.names[self._best(score)]}"
                rows.append([label, *ends])
        return rows


_TO_BEST = ("difference", "low", "high", "means_something")


# More examples are joined into this many random groups, which are resampled.
MOST_UNITS = 2**14


def bootstrap_means(
    sums: Callable[[np.ndarray, int], np.ndarray],
    count: int,
    *,
    repeats: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means of columns over all rows, and over resampled rows.

    Each repeat draws as many rows as there are, with replacement, and uses
    them for all columns. The difference of two columns of the result is a
    paired bootstrap. More than 16,384 rows are joined into as many groups of
    random rows: the mean of a resample has the same variance.
    """
    rng = np.random.default_rng(seed)
    group, units = np.arange(count), count
    if count > MOST_UNITS:
        group, units = rng.permutation(count) % MOST_UNITS, MOST_UNITS
    size = np.bincount(group, minlength=units).astype("float64")
    columns = sums(group, units)
    means = np.empty((repeats, columns.shape[1]))
    for repeat in range(repeats):
        drawn = rng.integers(units, size=units)
        weight = np.bincount(drawn, minlength=units).astype("float64")
        means[repeat] = weight @ columns / (weight @ size)
    return columns.sum(0) / count, means
