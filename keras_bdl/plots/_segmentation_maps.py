"""Pictures of a segmentation beside maps of its uncertainty."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl.plots._canvas import COLORS
from keras_bdl.plots._canvas import pyplot
from keras_bdl.prediction import ClassificationPrediction

MEASURES = {
    "mutual_information": "mutual information",
    "entropy": "entropy",
    "expected_entropy": "expected entropy",
}
# Background, then the colours of all plots.
_CLASSES = ("#EDEDED", *COLORS)


def segmentation_maps(
    images: ArrayLike,
    prediction: ClassificationPrediction,
    y: ArrayLike | None = None,
    *,
    uncertainty: str = "mutual_information",
    rows: int = 4,
    class_names: Any = None,
) -> Any:
    """Draws images, their labels, the predicted classes and the uncertainty.

    Use it to see where in an image a network does not know. All maps of the
    uncertainty have one scale, so that rows can be compared.

    Args:
        images: Images `(n, height, width)` or with one or three channels.
        prediction: The prediction of the images, from `keras_bdl.predict`.
        y: Labels of the pixels, integers or one-hot. A label that is no class,
            such as 255, or that the loss ignores, stays white. Defaults to
            `None`, the labels in the prediction, if there are any.
        uncertainty: `"mutual_information"`, `"entropy"` or
            `"expected_entropy"`. Defaults to `"mutual_information"`, or the
            entropy if there is only one posterior sample.
        rows: Number of images to draw, from the first on. Defaults to `4`.
        class_names: Names of the classes for the legend. Defaults to `None`,
            the numbers.

    Returns:
        The Matplotlib figure.

    Example:

    ```python
    maps = keras_bdl.predict(segmenter, images)
    figure = keras_bdl.plots.segmentation_maps(images, maps)
    figure.savefig("maps.png")
    ```
    """
    check_classification("prediction", prediction)
    check_choice("uncertainty", uncertainty, tuple(MEASURES))
    check_count("rows", rows)
    images = _checked_images(images, prediction)
    y = _checked_labels(prediction.y if y is None else y, prediction)
    if prediction.num_samples == 1 and uncertainty == "mutual_information":
        uncertainty = "entropy"  # one sample has no mutual information
    rows = min(rows, len(images))
    plt = pyplot()
    height = 1.9 * np.clip(images.shape[1] / images.shape[2], 0.3, 3)
    titles = ["image", *(["label"] if y is not None else []), "predicted"]
    figure, axes = plt.subplots(
        rows,
        len(titles) + 1,
        figsize=(1.9 * (len(titles) + 1) + 0.6, height * rows + 0.6),
        layout="constrained",
        squeeze=False,
    )
    colors = _class_colors(plt, prediction.num_classes)
    of_classes = {
        "cmap": colors,
        "vmin": -0.5,
        "vmax": prediction.num_classes - 0.5,
        "interpolation": "nearest",
    }
    maps = getattr(prediction, uncertainty)
    maps = _without_padding(maps, prediction)[:rows]
    for i in range(rows):
        first, *middle, last = axes[i]
        gray = images.ndim == 3
        first.imshow(images[i], **({"cmap": "gray"} if gray else {}))
        shown = [_without_padding(prediction.predicted_classes, prediction)[i]]
        if y is not None:
            shown = [y[i], *shown]
        for ax, classes in zip(middle, shown, strict=True):
            ax.imshow(classes, **of_classes)
        drawn = last.imshow(
            maps[i], cmap="magma", vmin=0.0, vmax=max(float(maps.max()), 1e-6)
        )
    for ax, title in zip(
        axes[0], [*titles, MEASURES[uncertainty]], strict=True
    ):
        ax.set_title(title, fontsize="medium")
    for ax in axes.ravel():
        ax.set_xticks([])
        ax.set_yticks([])
    figure.colorbar(drawn, ax=axes[:, -1], label="nats", shrink=0.8)
    outside = y is not None and np.ma.getmaskarray(y[:rows]).any()
    _add_classes(figure, colors, class_names, prediction.num_classes, outside)
    return figure


def _checked_images(
    images: ArrayLike, prediction: ClassificationPrediction
) -> np.ndarray:
    images = np.asarray(images)
    shape = prediction.log_mean.shape
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    channels = images.ndim == 3 or (images.ndim == 4 and images.shape[-1] == 3)
    if not channels or images.shape[:3] != shape[:-1]:
        raise ValueError(
            "`images` must be the images of the prediction, in shape "
            f"{shape[:-1]}, or with one or three channels more. "
            f"Received: images of shape {images.shape}"
        )
    if images.ndim == 4:  # colours
        images = images.astype("float64")
        low, high = images.min(), images.max()
        images = (images - low) / max(high - low, 1e-12)
    return images


def _without_padding(values: Any, prediction: ClassificationPrediction) -> Any:
    """Returns values of pixels, masked in padding."""
    if prediction.mask is None:
        return values
    return np.ma.masked_array(values, ~prediction.mask)


def _checked_labels(
    y: ArrayLike | None, prediction: ClassificationPrediction
) -> Any:
    """Returns integers, masked where a label does not count; or `None`."""
    if y is None:
        return None
    shape = prediction.log_mean.shape
    y = np.asarray(y)
    if y.shape == shape and shape[-1] > 1:
        y = y.argmax(-1)
    if y.shape not in (shape[:-1], (*shape[:-1], 1)):
        raise ValueError(
            f"`y` must have one label for each pixel, in shape {shape[:-1]}. "
            f"Received: y of shape {y.shape}"
        )
    y = np.ma.masked_outside(y.reshape(shape[:-1]), 0, shape[-1] - 1)
    if prediction.ignore_class is not None:
        y = np.ma.masked_equal(y, prediction.ignore_class)
    return _without_padding(y, prediction)


def _class_colors(plt: Any, num_classes: int) -> Any:
    if num_classes <= len(_CLASSES):
        # Old versions take two colours in a tuple for a colour and an alpha.
        colors = list(_CLASSES[:num_classes])
        return plt.matplotlib.colors.ListedColormap(colors)
    return plt.get_cmap("turbo", num_classes)


def _add_classes(
    figure: Any, colors: Any, class_names: Any, num_classes: int, outside: Any
) -> None:
    """Adds a legend of the classes, if there are few, and of other labels."""
    if num_classes > len(_CLASSES):
        return
    names = range(num_classes) if class_names is None else class_names
    if len(names) != num_classes:
        raise ValueError(
            f"`class_names` must have one name for each of the {num_classes} "
            f"classes. Received: class_names={list(names)}"
        )
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colors(k), edgecolor="#777777", label=str(name))
        for k, name in enumerate(names)
    ]
    if outside:
        white = Patch(facecolor="white", edgecolor="#777777", label="no class")
        handles.append(white)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 6),
        frameon=False,
    )
