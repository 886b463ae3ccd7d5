"""Axes side by side, one for each pair of data and network."""

import math

import matplotlib.pyplot as plt

from keras_bdl.extend import method_styles
from keras_bdl.extend import open_axes

MOST_COLUMNS = 4
COLORS = [style["color"] for style in method_styles(range(8)).values()]
# Width in inches of the handle of a legend entry, and of each letter.
HANDLE, LETTER = 0.7, 0.075


def of_places(results):
    """Returns results by data and network, and then by cell.

    Args:
        results: A list with a `Result` for each seed, by cell.
    """
    places = {}
    for cell, of_seeds in results.items():
        places.setdefault(cell.where, {})[cell] = of_seeds
    return places


def figure(titles, rows=1, width=4.4, height=3.6, **kwargs):
    """Returns a figure with plain panels, each with a title.

    Args:
        titles: Titles of the panels.
        rows: Number of axes of a panel, one below the other.
        width: Width of one of the axes, in inches.
        height: Height of one of the axes, in inches.
        **kwargs: Passed to `subplots`.

    Returns:
        The figure, and a list of axes for each panel.
    """
    columns = min(len(titles), MOST_COLUMNS)
    blocks = math.ceil(len(titles) / columns)
    drawn, axes = plt.subplots(
        blocks * rows,
        columns,
        figsize=(width * columns, height * blocks * rows),
        layout="constrained",
        squeeze=False,
        **kwargs,
    )
    panels = []
    for number in range(blocks * columns):
        block, column = divmod(number, columns)
        panel = list(axes[block * rows : (block + 1) * rows, column])
        if number >= len(titles):
            for ax in panel:
                ax.remove()
            continue
        for ax in panel:
            open_axes(ax)
        panel[0].set_title(titles[number], fontsize="medium")
        panels.append(panel)
    return drawn, panels


def heading(drawn, recipe, words=""):
    """Writes the title of a recipe and its scale above a figure.

    Args:
        drawn: The figure.
        recipe: The `Recipe`.
        words: Text after the title. Defaults to `""`.
    """
    drawn.suptitle(recipe.heading(words), fontsize="medium", wrap=True)


def one_legend(drawn, panels):
    """Puts the labels of all panels into one legend below the figure.

    Args:
        drawn: The figure.
        panels: A list of axes for each panel.
    """
    named = {}
    for panel in panels:
        for ax in panel:
            for handle, name in zip(
                *ax.get_legend_handles_labels(), strict=True
            ):
                named.setdefault(name, handle)
            if ax.get_legend():
                ax.get_legend().remove()
    room = drawn.get_figwidth() / (HANDLE + LETTER * max(map(len, named)))
    drawn.legend(
        named.values(),
        named.keys(),
        loc="outside lower center",
        ncols=max(min(len(named), 3, int(room)), 1),
        fontsize="small",
        frameon=False,
    )


def labels(results, without=()):
    """Returns a short label for each cell, without shared options.

    Args:
        results: A list with a `Result` for each seed, by cell.
        without: Names of other options to leave out. Defaults to `()`.
    """
    options = [set(cell.options) for cell in results]
    unsaid = {pair for pair in set.union(*options) if pair[0] in without}
    unsaid |= set.intersection(*options)
    return {cell: cell.label_without(unsaid) for cell in results}
