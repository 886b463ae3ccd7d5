"""Tables and a picture of the scores of the regressions."""

import numpy as np

import keras_bdl as bdl

# Name of a column, and function from a report to its number.
COLUMNS = {
    "RMSE": lambda report: report["rmse"],
    "log-likelihood": lambda report: report["log_likelihood"],
    "CRPS": lambda report: report["crps"],
    "95 % covers": lambda report: report["coverage"][0.95],
    "seconds": lambda report: report["seconds"],
}


def mean_and_error(values):
    """Returns the mean and its standard error, NaN for one value."""
    error = np.nan
    if len(values) > 1:
        error = np.std(values, ddof=1) / len(values) ** 0.5
    return np.mean(values), error


def table(title, reports):
    """Means over the splits, with their standard errors."""
    gain = "above determ."
    heads = [*COLUMNS][:2] + [gain] + [*COLUMNS][2:]
    lines = [title, "", "".ljust(24) + "".join(h.rjust(19) for h in heads)]
    base = [COLUMNS["log-likelihood"](r) for r in reports["deterministic"]]
    for name, of_splits in reports.items():
        columns = {h: [f(r) for r in of_splits] for h, f in COLUMNS.items()}
        # All methods have the same splits: differences vary less than means.
        columns[gain] = np.subtract(columns["log-likelihood"], base)
        cells = []
        for head in heads:
            mean, error = mean_and_error(columns[head])
            digits = 1 if head == "seconds" else 3
            cell = f"{mean:.{digits}f}"
            if head != "seconds" and not np.isnan(error):
                cell += f" ± {error:.{digits}f}"
            cells.append(cell.rjust(19))
        lines.append(name.ljust(24) + "".join(cells))
    return "\n".join(lines)


def draw(data, by_noise):
    """Draws RMSE and log-likelihood of every method, with errors."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 2, figsize=(9.0, 4.2), sharey=True, layout="constrained"
    )
    for ax, (head, read) in zip(axes, list(COLUMNS.items())[:2], strict=True):
        bdl.extend.open_axes(ax)
        styles = bdl.extend.method_styles(by_noise)
        for shift, (noise, reports) in zip(
            (-0.13, 0.13), by_noise.items(), strict=False
        ):
            values = [[read(r) for r in of] for of in reports.values()]
            means, errors = np.transpose([mean_and_error(v) for v in values])
            ax.errorbar(
                means,
                np.arange(len(means)) + shift,
                xerr=np.nan_to_num(errors),
                fmt="o",
                color=styles[noise]["color"],
                label=f"noise: {noise}",
            )
        ax.set_xlabel(f"{head} on test data, ± standard error")
    axes[0].set_yticks(range(len(reports)), reports)
    axes[0].invert_yaxis()
    axes[1].legend(frameon=False)
    figure.suptitle(data, weight="bold")
    return figure
