"""Base class of reports, and the tables that they print."""

import copy
import dataclasses
import html
import math
from collections.abc import KeysView
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

CELL_WIDTH = 9
# Metadata of a field of a report that `to_dict` leaves out.
NOT_A_NUMBER = {"number": False}


def format_number(value: float) -> str:
    """Returns a number with at least four digits, or "n/a" for NaN.

    Args:
        value: The number.
    """
    if math.isnan(value):
        return "n/a"
    if value == 0:
        return "0.0000"  # zero may be negative
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.4f}"
    return f"{value:.3e}"


def format_tables(title: str, sections: Sequence) -> str:
    """Returns tables with aligned columns, each under its title.

    Args:
        title: First line.
        sections: Pairs of a title and rows. A row is a label followed by
            cells, strings or numbers.
    """
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
    """Returns the tables of `format_tables` in HTML.

    Args:
        title: First line.
        sections: Pairs of a title and rows, as in `format_tables`.
    """
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
    """Returns nested dicts and lists as one dict, with names like `a.b.0`.

    Args:
        values: The nested dict. The entries of a list are counted from 0.
    """
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
    """Returns a `pandas.DataFrame` with one row for each dict.

    Args:
        rows: The rows.
        names: Names of the rows. Defaults to `None`, the numbers from 0.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "`to_frame` needs pandas, which is not installed. Run "
            "`pip install pandas`, or use `to_dict`."
        ) from error
    return pandas.DataFrame(rows, index=names)


def _texts(cells):
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
