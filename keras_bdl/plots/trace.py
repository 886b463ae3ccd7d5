"""The way of several chains."""

import itertools

import numpy as np

from keras_bdl.diagnostics.chains.chain_arrays import check_chains
from keras_bdl.diagnostics.chains.chain_arrays import quantity
from keras_bdl.plots.canvas import COLORS
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import open_axes


def trace(chains, entry=None, name: str | None = None, ax=None):
    """Draws a quantity draw by draw, one line a chain.

    Chains that have converged cross each other all the time, and none of
    them drifts.

    Args:
        chains: Array of shape `(chains, draws, ...)`, such as a variable of
            `keras_bdl.diagnostics.WeightChains` or what
            `keras_bdl.diagnostics.prediction_chains` returns.
        entry: Which quantity: its index behind the first two axes, an
            integer or a tuple. Defaults to `None`: there is but one.
        name: Of the quantity, for the axis. Defaults to `None`, `entry`.
        ax: Matplotlib axes. Defaults to `None`, those of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    p = keras_bdl.diagnostics.prediction_chains(chains, model, x_test)
    keras_bdl.plots.trace(p, entry=(0, 3), name="p(class 3) of input 0")
    ```
    """
    chains = quantity(check_chains(chains, min_chains=1), entry)
    ax = open_axes(ax)
    draw_chains(ax, np.arange(1, chains.shape[1] + 1), chains)
    ax.set_xlim(1, chains.shape[1])
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("draw")
    ax.set_ylabel(entry_name(entry, name))
    add_method_legend(ax)
    return ax


def draw_chains(ax, x, chains):
    """Draws one line a chain, named by its number."""
    for number, (y, color) in enumerate(
        zip(chains, itertools.cycle(COLORS), strict=False), 1
    ):
        ax.plot(x, y, color=color, linewidth=1.1, label=f"chain {number}")


def entry_name(entry, name):
    """Returns what to call a quantity that may have been given a name."""
    if name is not None:
        return name
    return "quantity" if entry is None else f"quantity {entry}"
