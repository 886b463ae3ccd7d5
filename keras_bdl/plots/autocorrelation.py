"""How long several chains remember."""

import numpy as np

from keras_bdl import diagnostics
from keras_bdl.diagnostics.chains.chain_arrays import check_chains
from keras_bdl.diagnostics.chains.chain_arrays import quantity
from keras_bdl.plots.canvas import GREY
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import open_axes
from keras_bdl.plots.trace import draw_chains
from keras_bdl.plots.trace import entry_name


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
