"""Reports: named numbers, their tables, and the examples behind them."""

import copy
import dataclasses
import html
import math
import zlib
from collections.abc import Iterable
from collections.abc import KeysView
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np

CELL_WIDTH = 9
# Metadata of a field of a report that `to_dict` leaves out.
NOT_A_NUMBER = {"number": False}


def format_number(value: float) -> str:
    """Returns a number with at least four digits, or "n/a" for NaN."""
    if math.isnan(value):
        return "n/a"
    if value == 0:
        return "0.0000"  # zero may be negative
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.4f}"
    return f"{value:.3e}"


def format_tables(title: str, sections: Sequence) -> str:
    """Returns tables with aligned columns, each under its title."""
    labels = [row[0] for _, rows in sections for row in rows]
    label_width = max(map(len, labels))
    width = max(
        CELL_WIDTH,
        *(
            len(text)
            for _, rows in sections
            for _, *cells in rows
            for text in _texts(cells)
        ),
    )
    lines = [title]
    for section, rows in sections:
        lines += ["", section]
        for label, *cells in rows:
            right = "".join(f"  {text:>{width}}" for text in _texts(cells))
            lines.append(f"  {label:<{label_width}}{right}")
    return "\n".join(lines)


def format_html(title: str, sections: Sequence) -> str:
    """Returns the tables of `format_tables` in HTML."""
    lines = [f"<p><b>{html.escape(title)}</b></p>"]
    for section, rows in sections:
        lines.append("<table>")
        lines.append(
            '<caption style="text-align: left; caption-side: top">'
            f"{html.escape(section)}</caption>"
        )
        for label, *cells in rows:
            texts = "".join(
                f'<td style="text-align: right">{html.escape(text)}</td>'
                for text in _texts(cells)
            )
            # HTML removes the spaces that indent a label.
            indent = "&nbsp;" * (len(label) - len(label.lstrip()))
            name = indent + html.escape(label.lstrip())
            lines.append(
                f'<tr><td style="text-align: left">{name}</td>{texts}</tr>'
            )
        lines.append("</table>")
    return "\n".join(lines)


def flat_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dicts and lists as one dict, with names like `a.b.0`."""
    found = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            value = dict(enumerate(value))
        if isinstance(value, Mapping):
            inner = flat_numbers(value).items()
            found.update({f"{name}.{key}": entry for key, entry in inner})
        else:
            found[str(name)] = value
    return found


def data_frame(rows: list[dict], names: Sequence[str] | None = None) -> Any:
    """Returns a `pandas.DataFrame` with one row for each dict."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "`to_frame` needs pandas, which is not installed. Run "
            "`pip install pandas`, or use `to_dict`."
        ) from error
    return pandas.DataFrame(rows, index=names)


def _texts(cells: Iterable) -> list[str]:
    return [c if isinstance(c, str) else format_number(c) for c in cells]


@dataclasses.dataclass(frozen=True)
class Report:
    """Named numbers that print as a table.

    Read a number as an attribute (`report.nll`) or an item (`report["nll"]`).
    A number that the data do not define is NaN and prints as "n/a"; an
    example is the AUROC of correctness if all predictions are correct.

    Attributes:
        TABLE_SCORES: Names of the numbers that `keras_bdl.evaluation.table`
            shows, without names in a report that has no table.
    """

    TABLE_SCORES: ClassVar[tuple[str, ...]] = ()

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def keys(self) -> KeysView[str]:
        """Returns the names of the numbers, so that `dict(report)` works."""
        return self.to_dict().keys()

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers as a dict of plain Python types."""
        return {
            field.name: copy.deepcopy(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.metadata != NOT_A_NUMBER
        }

    def to_frame(self) -> Any:
        """Returns the numbers as a `pandas.DataFrame` with one row.

        A number inside a dict or a list has a column such as
        `"ood.svhn.entropy.auroc"` or `"referral.accuracy.0"`. Join the frames
        of several reports with `pandas.concat`.
        """
        return data_frame([flat_numbers(self.to_dict())])

    def _repr_html_(self) -> str:
        """Returns the tables for a notebook."""
        return format_html(self.title(), self.sections())

    def __str__(self) -> str:
        return format_tables(self.title(), self.sections())

    def title(self) -> str:
        """Returns the first line of the printed report."""
        raise NotImplementedError

    def sections(self) -> list[tuple]:
        """Returns the title and the rows of each table, in pairs."""
        raise NotImplementedError


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
        """Returns the numbers that are kept."""
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
        """Returns the sums of the columns of a score over groups."""
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
        """Returns the score of means of the columns, on the last axis."""
        return _FORMULAS[self.formulas.get(name, "mean")](means)

    def is_biased(self, name: str) -> bool:
        """Returns whether a score is larger for fewer examples, by chance."""
        return "gaps" in self.formulas.get(name, "mean")


# The formula of sums over the entries of an example and of their number.
_OF_SUMS = {"mean": "ratio", "root": "root of ratio", "gaps": "summed gaps"}


def _sums_of_entries(
    values: np.ndarray, row: np.ndarray, rows: int, formula: str
) -> np.ndarray:
    if formula != "gaps":
        return np.bincount(row, values, rows)[:, None]
    gaps, bins = values[:, 0], values[:, 1].astype(int)
    width = bins.max() + 1
    sums = np.bincount(row * width + bins, gaps, rows * width)
    return sums.reshape(rows, width)


def _mean_iou(means: np.ndarray) -> np.ndarray:
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
