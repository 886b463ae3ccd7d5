"""Base class of reports, and the tables that they print."""

import dataclasses
import math
from collections.abc import KeysView
from collections.abc import Sequence
from typing import Any

CELL_WIDTH = 9


def format_number(value: float) -> str:
    """Returns a number with at least four digits, or "n/a" for NaN.

    Args:
        value: The number.
    """
    if math.isnan(value):
        return "n/a"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
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
    """Named numbers that print as a table.

    Read a number as an attribute (`report.nll`) or an item (`report["nll"]`).
    A number that the data do not define is NaN and prints as "n/a"; an
    example is the AUROC of correctness if all predictions are correct.
    """

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def keys(self) -> KeysView[str]:
        """Returns the names of the numbers, so that `dict(report)` works."""
        return self.to_dict().keys()

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers as a dict of plain Python types."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return format_tables(self.title(), self.sections())

    def title(self) -> str:
        """Returns the first line."""
        raise NotImplementedError

    def sections(self) -> list[tuple]:
        """Returns the title and the rows of each table, in pairs."""
        raise NotImplementedError
