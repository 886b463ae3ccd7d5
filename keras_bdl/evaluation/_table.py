"""Several reports side by side."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_seed
from keras_bdl._reports._report import Report
from keras_bdl.evaluation._bootstrap import bootstrap_means
from keras_bdl.evaluation._report_table import ReportTable

# With fewer examples, the percentile interval is too narrow.
FEWEST_EXAMPLES = 20


def table(
    reports: Sequence[Report] | Mapping[str, Any],
    *,
    scores: Sequence[str] | None = None,
    level: float = 0.95,
    repeats: int = 2000,
    seed: int = 0,
) -> ReportTable:
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


def _by_name(reports):
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


def _asked(methods):
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


def _checked_scores(scores, methods):
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


def _check_examples(methods):
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


def _kept(methods, score):
    """Returns whether reports hold finite numbers of examples for a score."""
    return all(
        score in report.per_example.scores
        and np.isfinite(report.per_example.scores[score]).all()
        for several in methods.values()
        for report in several
    )


def _resamples(methods, scores, repeats, seed):
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
    widths = []

    def sums(unit, num_units):
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


def _differences(names, values, resampled, level, seed):
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


def _error_of_seeds(first, second):
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


def _standard_error(values):
    if len(values) < 2:
        return np.nan
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
