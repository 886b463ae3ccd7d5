"""Plot of the accuracy on each task while later tasks are learned."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl.plots._canvas import GREY
from keras_bdl.plots._canvas import add_figure_legend
from keras_bdl.plots._canvas import method_styles
from keras_bdl.plots._canvas import open_axes
from keras_bdl.plots._canvas import pyplot

PANEL = (1.75, 2.5)  # inches
FEWEST_WIDTHS = 3
DODGE = 0.07  # keeps error bars apart


def task_accuracies(
    accuracies: dict[str, ArrayLike],
    *,
    tasks: Sequence[str] | None = None,
    chance: float | None = None,
    title: str | None = None,
) -> Any:
    """Draws the accuracy on each task while further tasks are learned.

    Use it to see how much a continual learner forgets. Each task has a panel,
    which starts with the accuracy after the training on this task. The last
    panel shows the mean over all tasks learned so far. Error bars are standard
    errors over repetitions.

    Args:
        accuracies: Dict from the name of a method to an array of shape
            `(tasks, tasks)` or `(repetitions, tasks, tasks)`. Entry `[t, k]`
            is the accuracy on task k after training on task t. Entries above
            the diagonal are ignored.
        tasks: Names of the tasks. Defaults to `None`, their numbers.
        chance: Accuracy of guessing, drawn as a line. Defaults to `None`.
        title: Title of the picture. Defaults to `None`.

    Returns:
        The figure.

    Example:

    ```python
    figure = keras_bdl.plots.task_accuracies(
        {"mean-field": [[0.99, 0.0], [0.81, 0.98]]}, tasks=["0/1", "2/3"]
    )
    figure.savefig("tasks.png")
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), figure 5, which shows only the
          last point of each curve
    """
    arrays = _checked(accuracies)
    count = next(iter(arrays.values())).shape[-1]
    if tasks is not None and len(tasks) != count:
        raise ValueError(
            f"`tasks` must be the names of {count} tasks. "
            f"Received: tasks={tasks!r}"
        )
    names = tasks or [f"task {k + 1}" for k in range(count)]
    plt = pyplot()
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        width = PANEL[0] * max(count + 1, FEWEST_WIDTHS)
        figure, panels = plt.subplots(
            1,
            count + 1,
            figsize=(width, PANEL[1] + 0.6),
            sharex=True,
            sharey=True,
            layout="constrained",
        )
        figure.suptitle(title, weight="bold")
        for k, ax in enumerate(panels[:-1]):
            ax.set_title(names[k], loc="left", weight="bold")
            curves = {name: a[:, k:, k] for name, a in arrays.items()}
            _draw(ax, np.arange(k + 1, count + 1), curves)
        panels[-1].set_title("mean so far", loc="left", weight="bold")
        _draw(panels[-1], np.arange(1, count + 1), _means_so_far(arrays))
        for ax in panels:
            if chance is not None:
                ax.axhline(chance, color=GREY, linestyle=":", label="guessing")
            ax.set_xlim(0.6, count + 0.4)
            ax.set_xticks(range(1, count + 1))
            ax.set_xlabel("tasks learned")
        panels[0].set_ylabel("accuracy")
        handles, labels = panels[0].get_legend_handles_labels()
        add_figure_legend(figure, handles, labels, len(labels))
    return figure


def _checked(accuracies: Any) -> dict[str, np.ndarray]:
    """Returns arrays of shape `(repetitions, tasks, tasks)`."""
    if not isinstance(accuracies, dict) or not accuracies:
        raise ValueError(
            "`accuracies` must be a dict from the name of a method to its "
            f"accuracies. Received: {type(accuracies).__name__}"
        )
    arrays = {}
    for name, values in accuracies.items():
        values = np.asarray(values, "float64")
        arrays[name] = values[None] if values.ndim == 2 else values
    shapes = {name: a.shape for name, a in arrays.items()}
    counts = {shape[-1] for shape in shapes.values() if shape}
    square = all(len(s) == 3 and s[1] == s[2] > 0 for s in shapes.values())
    if not square or len(counts) > 1:
        raise ValueError(
            "`accuracies` must have the shape (tasks, tasks) or (repetitions, "
            "tasks, tasks), with as many tasks for each method. "
            f"Received: {shapes}"
        )
    for name, a in arrays.items():
        if not np.isfinite(a[:, *np.tril_indices(a.shape[-1])]).all():
            raise ValueError(
                "`accuracies` must be finite on and below the diagonal. "
                f"Received: NaN or infinity for {name!r}"
            )
    return arrays


def _means_so_far(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the mean over the tasks learned so far."""
    return {
        name: np.stack(
            [a[:, t, : t + 1].mean(-1) for t in range(a.shape[-1])], -1
        )
        for name, a in arrays.items()
    }


def _draw(ax: Any, x: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """Draws means over the first axis, with their standard errors."""
    open_axes(ax)
    middle = (len(curves) - 1) / 2
    for place, (name, style) in enumerate(method_styles(curves).items()):
        y = curves[name]
        error = None
        if len(y) > 1:
            error = y.std(0, ddof=1) / np.sqrt(len(y))
        ax.errorbar(
            x + DODGE * (place - middle),
            y.mean(0),
            error,
            label=name,
            linewidth=1.6,
            markersize=4.5,
            elinewidth=1.0,
            capsize=2.0,
            **style,
        )
