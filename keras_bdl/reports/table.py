"""Tables of plain text."""

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
