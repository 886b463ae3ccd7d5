"""The class of each stored label, and the selection of classes."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from keras_bdl.datasets._specs import SHARED_CLASSES
from keras_bdl.datasets._specs import DatasetSpec


def class_of_each_label(
    stored: DatasetSpec, target: DatasetSpec, num_labels: int
) -> tuple[int, ...]:
    """Returns the class of each stored label, -1 for a label without class.

    Args:
        stored: Specification of the stored data set.
        target: Specification of the data set that defines the classes.
        num_labels: Number of different stored labels.
    """
    if target is not stored:
        pair = stored.name, target.name
        if pair not in SHARED_CLASSES:
            pairs = ", ".join(f"{a} like {b}" for a, b in SHARED_CLASSES)
            raise ValueError(
                "`like` must name a data set with known shared classes: "
                f"{pairs}. Received: {pair[0]} like {pair[1]}"
            )
        return SHARED_CLASSES[pair]
    label_map = stored.label_map or tuple(range(num_labels))
    if len(label_map) != num_labels:
        raise ValueError(
            f"`label_map` must have one class for each of the {num_labels} "
            f"labels of `{stored.name}`. Received: label_map={label_map}"
        )
    return label_map


def selected_classes(
    classes: Any, default: Sequence[int] | None, num_classes: int
) -> tuple[int, ...]:
    """Returns the classes that the argument `classes` of `load` selects.

    Args:
        classes: Argument of `load`.
        default: Classes that `None` selects, or `None` for all classes.
        num_classes: Number of all classes.

    Returns:
        A tuple of distinct classes.
    """
    if classes is None:
        classes = default
    if classes is None or (isinstance(classes, str) and classes == "all"):
        return tuple(range(num_classes))
    try:
        selected = tuple(int(c) for c in classes)
        valid = (
            selected == tuple(classes)
            and len(selected) == len(set(selected)) >= 2
            and all(0 <= c < num_classes for c in selected)
        )
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            '`classes` must be "all" or at least two different integers below '
            f"{num_classes}, such as `range(5)`. Received: classes={classes!r}"
        )
    return selected


def renumber(labels: Iterable[int], classes: Sequence[int]) -> tuple[int, ...]:
    """Returns the label 0, 1, ... that replaces each stored label.

    Args:
        labels: The class of each stored label.
        classes: The selected classes, in the order of their new labels.

    Returns:
        The new label of each stored label, -1 for classes left out.
    """
    number = {c: n for n, c in enumerate(classes)}
    return tuple(number.get(label, -1) for label in labels)
