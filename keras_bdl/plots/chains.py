"""Traces and autocorrelations of several chains."""

import itertools

import numpy as np

from keras_bdl import diagnostics
from keras_bdl.diagnostics.chains.chain_arrays import check_chains
from keras_bdl.diagnostics.chains.chain_arrays import quantity
from keras_bdl.plots.canvas import COLORS
from keras_bdl.plots.canvas import GREY
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


def autocorrelation(
    chains,
    entry=None,
    max_lag: int | None = None,
    name: str | None = None,
    ax=None,
):
    """Draws the autocorrelation of a quantity, one line a chain.

    The band holds 95 % of the autocorrelations of independent draws. The
    legend tells the effective sample size of all chains together.

    Args:
        chains: Array of shape `(chains, draws, ...)`, of at least two chains.
        entry: Which quantity: its index behind the first two axes, an
            integer or a tuple. Defaults to `None`: there is but one.
        max_lag: The largest lag, as in `keras_bdl.diagnostics.autocorrelation`.
            Defaults to `None`.
        name: Of the quantity, for the axis. Defaults to `None`, `entry`.
        ax: Matplotlib axes. Defaults to `None`, those of a new figure.

    Returns:
        The axes.
    """
    chains = quantity(check_chains(chains), entry)
    rho = diagnostics.autocorrelation(chains, max_lag)
    ess = diagnostics.effective_sample_size(chains)
    ax = open_axes(ax)
    half_width = 1.96 / np.sqrt(chains.shape[1])
    draw_chains(ax, np.arange(rho.shape[1]), rho)
    ax.axhspan(
        -half_width,
        half_width,
        color=GREY,
        alpha=0.2,
        linewidth=0,
        label="95 % of white noise",
    )
    ax.set_xlim(0, rho.shape[1] - 1)
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("lag (draws)")
    ax.set_ylabel(f"autocorrelation of {entry_name(entry, name)}")
    # A line of the legend that nothing is drawn for.
    ax.plot([], [], " ", label=f"ESS {ess:.0f} of {chains.size} draws")
    add_method_legend(ax)
    return ax
