"""Scores of single examples, which a report keeps for paired comparisons."""

import dataclasses
import zlib
from collections.abc import Mapping

import numpy as np

# 4 MiB for each number of an example.
MOST_KEPT = 2**20


@dataclasses.dataclass(frozen=True)
class PerExample:
    """Numbers of single test examples whose means give the scores of a report.

    Of more than 1,048,576 examples, every second, third, ... is kept, so that
    a report stays small.

    Attributes:
        checksum: A number that differs between sets of labels. With equal
            numbers, two reports are taken to be about the same examples.
        scores: Dict from a name to float32 numbers, one row for each kept
            example.
        formulas: Dict from a name to how the means of the columns give the
            score: `"mean"`, if there is no entry, is the mean itself, `"root"`
            its root, `"ratio"` the ratio of two means, `"root of ratio"` the
            root of this ratio. `"gaps"` is the
            calibration error, from pairs of a gap and the number of its bin;
            `"summed gaps"` the same, from a column for each bin and one of
            counts; `"iou"` the mean over the classes, from columns of hits,
            claimed and true pixels of each class.
    """

    checksum: int
    scores: dict[str, np.ndarray]
    formulas: dict[str, str]

    @classmethod
    def of(
        cls,
        y: np.ndarray | int,
        *,
        formulas: Mapping[str, str] | None = None,
        **scores: np.ndarray,
    ) -> "PerExample":
        """Returns the numbers that are kept.

        Args:
            y: Labels or targets of all examples, or their checksum.
            formulas: See above. Defaults to `None`, all means.
            **scores: Numbers with the examples on the first axis, by name.
        """
        checksum = (
            y if isinstance(y, int) else zlib.crc32(np.ravel(y).tobytes())
        )
        count = len(next(iter(scores.values())))
        kept = slice(None, None, -(-count // MOST_KEPT))
        return cls(
            checksum,
            {
                name: np.asarray(values)[kept].astype("float32")
                for name, values in scores.items()
            },
            dict(formulas or {}),
        )

    @classmethod
    def of_entries(
        cls,
        y: np.ndarray,
        example: np.ndarray,
        *,
        formulas: Mapping[str, str] | None = None,
        **scores: np.ndarray,
    ) -> "PerExample":
        """Returns the numbers of examples that may have several entries.

        The labels, tokens or pixels of one example depend on each other. So
        a row is the sum over the entries of an example. An example without an
        entry has no row.

        Args:
            y: Labels or targets of all entries.
            example: Number of the example of each entry, in rising order.
            formulas: `"mean"`, `"root"` or `"gaps"` of the numbers of entries.
                Defaults to `None`, all means.
            **scores: Numbers with the entries on the first axis, by name.
        """
        # Examples are numbered in rising order.
        first = np.diff(example, prepend=-1) > 0
        rows = int(first.sum())
        checksum = zlib.crc32(np.ravel(y).tobytes(), rows)
        formulas = dict(formulas or {})
        if rows == len(example):
            return cls.of(checksum, formulas=formulas, **scores)
        row = np.cumsum(first) - 1
        count = np.bincount(row)
        for name, values in scores.items():
            formula = formulas.get(name, "mean")
            formulas[name] = _OF_SUMS[formula]
            sums = _sums_of_entries(values, row, rows, formula)
            scores[name] = np.concatenate([sums, count[:, None]], axis=1)
        return cls.of(checksum, formulas=formulas, **scores)

    def sums(self, name: str, unit: np.ndarray, num_units: int) -> np.ndarray:
        """Returns the sums of the columns of a score over groups of examples.

        Args:
            name: Name of the score.
            unit: Number of the group of each example.
            num_units: Number of groups.
        """
        values = self.scores[name]
        if self.formulas.get(name) == "gaps":
            gaps, bins = values[:, 0], values[:, 1].astype(int)
            width = bins.max() + 1
            sums = np.bincount(unit * width + bins, gaps, num_units * width)
            return sums.reshape(num_units, width)
        columns = values.reshape(len(values), -1).T
        return np.stack(
            [np.bincount(unit, column, num_units) for column in columns], 1
        )

    def score(self, name: str, means: np.ndarray) -> np.ndarray:
        """Returns the score of means of the columns, on the last axis.

        Args:
            name: Name of the score.
            means: Means, in the columns of `sums`.
        """
        return _FORMULAS[self.formulas.get(name, "mean")](means)

    def is_biased(self, name: str) -> bool:
        """Returns whether a score is larger for fewer examples, by chance."""
        return "gaps" in self.formulas.get(name, "mean")


# The formula of sums over the entries of an example and of their number.
_OF_SUMS = {"mean": "ratio", "root": "root of ratio", "gaps": "summed gaps"}


def _sums_of_entries(values, row, rows, formula):
    if formula != "gaps":
        return np.bincount(row, values, rows)[:, None]
    gaps, bins = values[:, 0], values[:, 1].astype(int)
    width = bins.max() + 1
    sums = np.bincount(row * width + bins, gaps, rows * width)
    return sums.reshape(rows, width)


def _mean_iou(means):
    hits, claimed, true = np.split(means, 3, axis=-1)
    joined = claimed + true - hits
    ratio = np.full(hits.shape, np.nan)
    np.divide(hits, joined, out=ratio, where=joined > 0)
    return np.nanmean(ratio, axis=-1)


_FORMULAS = {
    "mean": lambda means: means[..., 0],
    "root": lambda means: np.sqrt(means[..., 0]),
    "ratio": lambda means: means[..., 0] / means[..., 1],
    "root of ratio": lambda means: np.sqrt(means[..., 0] / means[..., 1]),
    "gaps": lambda means: np.abs(means).sum(-1),
    "summed gaps": lambda means: (
        np.abs(means[..., :-1]).sum(-1) / means[..., -1]
    ),
    "iou": _mean_iou,
}
