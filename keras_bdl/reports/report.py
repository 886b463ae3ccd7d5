"""The base class of reports, and the tables that they print."""

import dataclasses
import math

CELL_WIDTH = 9


def format_number(value: float) -> str:
    """Returns a number in at least four digits, "n/a" for NaN."""
    if math.isnan(value):
        return "n/a"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4f}"
    return f"{value:.3e}"


def format_tables(title: str, sections: list) -> str:
    """Returns tables under their titles, their columns in line.

    Args:
        title: First line.
        sections: Pairs of a title and rows. A row is a label and its cells,
            strings or numbers.
    """
    labels = [row[0] for _, rows in sections for row in rows]
    label_width = max(map(len, labels))
    lines = [title]
    for section, rows in sections:
        lines += ["", section]
        for label, *cells in rows:
            texts = [
                c if isinstance(c, str) else format_number(c) for c in cells
            ]
            right = "".join(f"  {text:>{CELL_WIDTH}}" for text in texts)
            lines.append(f"  {label:<{label_width}}{right}")
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Report:
    """Numbers by name, as attributes or items, that print as a table.

    A number that is not defined for the data, such as a ranking of right
    above wrong where nothing is wrong, is NaN and prints as "n/a".
    """

    def __getitem__(self, name):
        return self.to_dict()[name]

    def keys(self):
        """Returns the names of the numbers, so that `dict(report)` works."""
        return self.to_dict().keys()

    def to_dict(self) -> dict:
        """Returns the numbers as a dict of plain Python types."""
        return dataclasses.asdict(self)

    def __str__(self):
        return format_tables(self.title(), self.sections())

    def title(self) -> str:
        """Returns the first line."""
        raise NotImplementedError

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        raise NotImplementedError
