"""The table and the legend of the experiments."""


def text_table(heads, rows):
    """Returns a table with equal columns, and numbers of four digits."""
    lines = ["".join(head.rjust(16) for head in heads)]
    for row in rows:
        cells = [c if isinstance(c, str) else f"{c:.4g}" for c in row]
        lines.append("".join(cell.rjust(16) for cell in cells))
    return "\n".join(lines)


def one_legend(figure, axes):
    """Replaces the legends of the axes by one legend above the axes."""
    handles, names = axes[-1].get_legend_handles_labels()
    for ax in axes:
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    figure.legend(
        handles, names, loc="outside upper center", ncols=2, frameon=False
    )
