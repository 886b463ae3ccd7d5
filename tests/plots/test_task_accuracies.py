import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_bdl import plots

# Three repetitions of two tasks.
A = np.array(
    [
        [[0.9, np.nan], [0.5, 1.0]],
        [[1.0, np.nan], [0.7, 0.9]],
        [[0.8, np.nan], [0.6, 0.8]],
    ]
)


def test_panels_show_the_accuracy_on_each_task_and_the_mean():
    figure = plots.task_accuracies(
        {"a": A, "b": A[0]}, tasks=["0/1", "2/3"], chance=0.5
    )
    first, second, mean = figure.axes
    assert [ax.get_title("left") for ax in figure.axes] == [
        "0/1",
        "2/3",
        "mean so far",
    ]
    lines = [ax.containers[0].lines for ax in figure.axes]
    for (line, _, _), x, y in zip(
        lines,
        ([1, 2], [2], [1, 2]),
        ([0.9, 0.6], [0.9], [0.9, 0.75]),
        strict=True,
    ):
        np.testing.assert_array_equal(np.round(line.get_xdata()), x)
        np.testing.assert_allclose(line.get_ydata(), y)
    (bars,) = lines[0][2]
    ends = np.array([s[:, 1] for s in bars.get_segments()])
    error = 0.1 / np.sqrt(3)
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * error)
    assert second.containers[1].lines[2] == ()  # one repetition
    (legend,) = figure.legends
    names = {text.get_text() for text in legend.get_texts()}
    assert names == {"a", "b", "guessing"}


def test_legend_is_at_most_as_wide_as_the_picture():
    methods = {f"a method with a long name, {k}": A for k in range(4)}
    figure = plots.task_accuracies(methods, chance=0.5)
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.width
    assert len(legend.get_texts()) == 5


@pytest.mark.parametrize(
    "message, arguments",
    [
        ("must be a dict", {"accuracies": A}),
        ("must have the shape", {"accuracies": {"a": A[:, :1]}}),
        ("as many tasks", {"accuracies": {"a": A, "b": np.ones((3, 3))}}),
        ("must be finite", {"accuracies": {"a": A * np.nan}}),
        ("names of 2 tasks", {"accuracies": {"a": A}, "tasks": ["0/1"]}),
    ],
)
def test_wrong_arguments_are_refused_and_leave_no_figure(message, arguments):
    with pytest.raises(ValueError, match=message):
        plots.task_accuracies(**arguments)
    assert not plt.get_fignums()
