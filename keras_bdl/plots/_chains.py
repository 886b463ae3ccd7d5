"""Plots of chains: traces and autocorrelations."""

import itertools
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl.diagnostics import _r_hat_and_ess
from keras_bdl.diagnostics._r_hat_and_ess import check_chains
from keras_bdl.diagnostics._r_hat_and_ess import quantity
from keras_bdl.plots._canvas import COLORS
from keras_bdl.plots._canvas import GREY
from keras_bdl.plots._canvas import add_method_legend
from keras_bdl.plots._canvas import open_axes


def trace(
    chains: ArrayLike,
    *,
    entry: int | tuple[int, ...] | None = None,
    label: str | None = None,
    ax: Any = None,
) -> Any:
    """Draws a quantity sample by sample, one line per chain.

    Use it to see whether chains have converged: the lines then cross each
    other all the time, and none of them drifts.

    Args:
        chains: Array of shape `(chains, samples, ...)`, such as a variable of
            `keras_bdl.extend.WeightChains` or the result of
            `keras_bdl.diagnostics.prediction_chains`.
        entry: Index of the quantity on the axes after the first two, an integer
            or a tuple. Defaults to `None`: the chains have only one quantity.
        label: Name of the quantity for the axis. Defaults to `None`, the index
            `entry`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    chains = [posterior, another_posterior]
    p = keras_bdl.diagnostics.prediction_chains(chains, model, x_test)
    keras_bdl.plots.trace(p, entry=(0, 1), label="p(class 1) of input 0")
    ```
    """
    chains = quantity(check_chains(chains, min_chains=1), entry)
    ax = open_axes(ax)
    _draw_chains(ax, np.arange(1, chains.shape[1] + 1), chains)
    ax.set_xlim(1, chains.shape[1])
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("sample")
    ax.set_ylabel(_label_of(entry, label))
    add_method_legend(ax)
    return ax


def _draw_chains(ax: Any, x: np.ndarray, chains: np.ndarray) -> None:
    """Draws one line per chain, labelled with its number."""
    for number, (y, color) in enumerate(
        zip(chains, itertools.cycle(COLORS), strict=False), 1
    ):
        ax.plot(x, y, color=color, linewidth=1.1, label=f"chain {number}")


def _label_of(entry: Any, label: str | None) -> str:
    if label is not None:
        return label
    return "quantity" if entry is None else f"quantity {entry}"


def autocorrelation(
    chains: ArrayLike,
    *,
    entry: int | tuple[int, ...] | None = None,
    max_lag: int | None = None,
    label: str | None = None,
    ax: Any = None,
) -> Any:
    """Draws the autocorrelation of a quantity, one line per chain.

    Use it to see how many steps a sampler needs between independent samples.
    For independent samples, 95 % of the autocorrelations lie in the band. The
    legend shows the effective sample size of all chains together.

    Args:
        chains: Array of shape `(chains, samples, ...)`, at least two chains.
        entry: Index of the quantity on the axes after the first two, an integer
            or a tuple. Defaults to `None`: the chains have only one quantity.
        max_lag: The largest lag, as in `keras_bdl.extend.autocorrelation`.
            Defaults to `None`: the smaller of 100 and half the number of
            samples.
        label: Name of the quantity for the axis. Defaults to `None`, the index
            `entry`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    chains = np.random.default_rng(0).normal(size=(2, 100))
    keras_bdl.plots.autocorrelation(chains)
    ```
    """
    chains = quantity(check_chains(chains), entry)
    rho = _r_hat_and_ess.autocorrelation(chains, max_lag=max_lag)
    ess = _r_hat_and_ess.effective_sample_size(chains)
    ax = open_axes(ax)
    half_width = 1.96 / np.sqrt(chains.shape[1])
    _draw_chains(ax, np.arange(rho.shape[1]), rho)
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
    ax.set_xlabel("lag (samples)")
    ax.set_ylabel(f"autocorrelation of {_label_of(entry, label)}")
    # Plots no points: only adds an entry to the legend.
    ax.plot([], [], " ", label=f"ESS {ess:.0f} of {chains.size} samples")
    add_method_legend(ax)
    return ax
