"""Report on the coverage of sets and intervals."""

import dataclasses
from collections.abc import Iterator
from typing import Any
from typing import ClassVar

import numpy as np

from keras_bdl._reports import NOT_A_NUMBER
from keras_bdl._reports import PerExample
from keras_bdl._reports import Report

# Probability of each interval in the report.
CONFIDENCE = 0.95
# Largest number of groups that are printed one by one.
MOST_GROUPS = 20
# First size of each group of set sizes.
SIZES = (0, 1, 2, 3, 4, 6, 11, 21, 51, 101)


@dataclasses.dataclass(frozen=True)
class CoverageReport(Report):
    """Coverage and sizes of sets or intervals, from their `evaluate`.

    Attributes:
        name: Name of the method.
        num_values: Number of labels or target values that count: with several
            targets, rows times targets, or rows if the method is `joint`.
            Padding does not count.
        level: The coverage that `fit` was asked for.
        coverage: Share of the labels or targets inside their sets.
        interval: Exact 95 % interval of Clopper and Pearson for the
            probability that a set contains its target. NaN for several
            targets without `joint`: those of one example are not independent.
        expected: Central 95 % interval for `coverage` if the data are
            exchangeable with the calibration data, by the Beta-binomial law:
            k and n + 1 - k from the calibration, and as many values as here.
            NaN if the sets have no single cutoff; `by_group` then has one for
            each class or target.
        mean_size: Mean number of classes, or mean width.
        median_size: Median number of classes, or median width.
        empty: Share of the empty sets.
        full: Share of the sets with all classes, or of infinite intervals.
        by_size: A dictionary from each range of sizes to count, coverage and
            `interval` of its sets.
        by_group: The same for each class, or each target, and `expected` of
            its own cutoff, NaN without one.
        of_classes: Whether these are sets of classes, not intervals.
        per_example: `PerExample` with numbers of single examples, for
            `keras_bdl.evaluation.table`. Not a part of `to_dict`.
    """

    TABLE_SCORES: ClassVar = ("coverage", "mean_size")

    name: str
    num_values: int
    level: float
    coverage: float
    interval: tuple[float, float]
    expected: tuple[float, float]
    mean_size: float
    median_size: float
    empty: float
    full: float
    by_size: dict
    by_group: dict
    of_classes: bool = dataclasses.field(metadata=NOT_A_NUMBER)
    per_example: PerExample = dataclasses.field(
        repr=False, compare=False, metadata=NOT_A_NUMBER
    )

    @classmethod
    def from_arrays(
        cls,
        method: Any,
        y: np.ndarray,
        covered: np.ndarray,
        sizes: np.ndarray,
        *,
        full: np.ndarray,
        groups: np.ndarray,
        num_groups: int,
        example: np.ndarray,
    ) -> "CoverageReport":
        """Returns the report on sets."""
        count, total = len(covered), int(covered.sum())
        of_classes = np.issubdtype(sizes.dtype, np.integer)
        by_size = (_by_count if of_classes else _by_width)(sizes)
        # Several targets of one example depend on each other.
        entry = _entry if of_classes or num_groups == 1 else _pooled
        cutoff, several = method.cutoff, (float("nan"), float("nan"))
        single = cutoff is not None and cutoff.ranks.size == 1
        return cls(
            name=type(method).__name__,
            num_values=count,
            level=method.coverage,
            coverage=total / count,
            interval=entry(covered)["interval"],
            expected=_expected(cutoff, 0, count) if single else several,
            mean_size=float(np.maximum(sizes, 0).mean()),
            median_size=float(np.median(np.maximum(sizes, 0))),
            empty=float(np.mean(sizes <= 0 if of_classes else sizes < 0)),
            full=float(full.mean()),
            by_size={name: entry(covered[chosen]) for name, chosen in by_size},
            by_group=_by_group(groups, covered, num_groups, cutoff),
            of_classes=of_classes,
            per_example=PerExample.of_entries(
                y, example, coverage=covered, mean_size=np.maximum(sizes, 0)
            ),
        )

    def title(self) -> str:
        """Returns the first line of the printed report."""
        return (
            f"{self.name}: {self.num_values} values, asked for a coverage of "
            f"{self.level:g}"
        )

    def sections(self) -> list[tuple]:
        """Returns a pair of title and rows for each table."""
        rows = [
            ["coverage", self.coverage],
            ["95 % interval of it", *self.interval],
            ["95 % expected within", *self.expected],
        ]
        sizes = [
            ["mean size", self.mean_size],
            ["median size", self.median_size],
        ]
        if self.of_classes:
            kind, full = "sets", "share of sets with all classes"
        else:
            kind, full = "intervals", "share of infinite intervals"
        sizes += [[f"share of empty {kind}", self.empty], [full, self.full]]
        found = [("Coverage", rows), (kind.capitalize(), sizes)]
        found.append(_table("By size", self.by_size))
        groups = {k: v for k, v in self.by_group.items() if v["count"]}
        if len(groups) > 1:
            title = "By class or target"
            if len(groups) > MOST_GROUPS:
                lowest = sorted(groups, key=lambda g: groups[g]["coverage"])
                groups = {g: groups[g] for g in lowest[:MOST_GROUPS]}
                title += f", the {MOST_GROUPS} with the lowest coverage"
            found.append(_table(title, groups))
        return found


def clopper_pearson(
    successes: int, count: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Returns the exact interval of a probability."""
    from scipy.special import betaincinv

    tail, failures = (1 - confidence) / 2, count - successes
    low = betaincinv(successes, failures + 1, tail) if successes else 0.0
    high = betaincinv(successes + 1, failures, 1 - tail) if failures else 1.0
    return float(low), float(high)


def _expected(cutoff: Any, group: int, count: int) -> tuple[float, float]:
    """Returns where a measured coverage is expected, as an interval."""
    import scipy.stats

    k, n = int(cutoff.ranks.flat[group]), int(cutoff.counts.flat[group])
    if k > n:
        return 1.0, 1.0
    # `ppf` of the law adds the probabilities again for each step of a search.
    values = np.arange(count + 1)
    total = scipy.stats.betabinom.pmf(values, count, k, n + 1 - k).cumsum()
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.searchsorted(total, tails) / count
    return float(low), float(high)


def _table(title: str, groups: dict) -> tuple[str, list]:
    heads, names = "count, coverage, 95 % interval", ["interval"]
    if any(
        np.isfinite(g.get("expected", np.nan)).all() for g in groups.values()
    ):
        heads, names = f"{heads}, 95 % expected", ["interval", "expected"]
    rows = [
        [
            str(group),
            str(g["count"]),
            g["coverage"],
            *(end for name in names for end in g[name]),
        ]
        for group, g in groups.items()
    ]
    return f"{title}: {heads}", rows


def _entry(covered: np.ndarray) -> dict[str, Any]:
    total, count = int(covered.sum()), len(covered)
    return {
        "count": count,
        "coverage": total / count if count else float("nan"),
        "interval": clopper_pearson(total, count) if count else (0.0, 1.0),
    }


def _pooled(covered: np.ndarray) -> dict[str, Any]:
    """Returns an entry without an interval."""
    return {**_entry(covered), "interval": (float("nan"), float("nan"))}


def groups_by_size(sizes: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the name of each range of sizes, and which sets are in it."""
    if sizes.max() < SIZES[-1]:
        return _by_count(sizes)
    return _by_width(sizes.astype("float64"))


def _by_count(sizes: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    places = np.searchsorted(SIZES, sizes, side="right") - 1
    for i, first in enumerate(SIZES):
        chosen = places == i
        if chosen.any():
            last = SIZES[i + 1] - 1 if i + 1 < len(SIZES) else None
            name = f"{first}+" if last is None else f"{first}-{last}"
            yield str(first) if first == last else name, chosen


def _by_width(sizes: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields up to four groups of equally many intervals."""
    finite = sizes[np.isfinite(sizes)]
    largest = max(finite.max(initial=0.0), 1e-300)
    rounded = np.round(sizes / largest, 4)  # rounding errors make no groups
    edges = np.unique(np.quantile(rounded, [0.25, 0.5, 0.75], method="lower"))
    places = np.searchsorted(edges, rounded)
    names = set()
    for i in np.unique(places):
        chosen = places == i
        low, high = sizes[chosen].min(), sizes[chosen].max()
        name = _range(f"{low:.3g}", f"{high:.3g}")
        if name in names:  # widths that hardly differ
            name = _range(f"{low:.6g}", f"{high:.6g}")
        names.add(name)
        yield name, chosen


def _range(low: str, high: str) -> str:
    if low == high:
        return {"inf": "infinite"}.get(low, low)
    return f"{low} to {high}"


def _by_group(
    groups: np.ndarray, covered: np.ndarray, num_groups: int, cutoff: Any
) -> dict[int, dict]:
    counts = np.bincount(groups, minlength=num_groups)
    totals = np.bincount(groups[covered], minlength=num_groups)
    own = cutoff is not None and cutoff.ranks.size == num_groups
    return {
        g: {
            "count": int(count),
            "coverage": int(total) / int(count) if count else float("nan"),
            "interval": clopper_pearson(int(total), int(count)),
            "expected": _expected(cutoff, g, int(count))
            if own and count
            else (float("nan"), float("nan")),
        }
        for g, (count, total) in enumerate(zip(counts, totals, strict=True))
    }
