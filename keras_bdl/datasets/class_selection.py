"""Which stored labels are which classes."""

from keras_bdl.datasets.specs import SHARED_CLASSES


def class_of_each_label(stored, target, num_labels: int):
    """The class of each stored label, -1 where it stands for none.

    Args:
        stored: `DatasetSpec` of what is stored.
        target: `DatasetSpec` of the set whose classes are meant.
        num_labels: Number of stored labels.
    """
    if target is not stored:
        pair = stored.name, target.name
        if pair not in SHARED_CLASSES:
            pairs = ", ".join(f"{a} like {b}" for a, b in SHARED_CLASSES)
            raise ValueError(
                "`like` must name a data set whose classes are known to be "
                f"shared: {pairs}. Received: {pair[0]} like {pair[1]}"
            )
        return SHARED_CLASSES[pair]
    label_map = stored.label_map or tuple(range(num_labels))
    if len(label_map) != num_labels:
        raise ValueError(
            f"`label_map` must have one class for each of the {num_labels} "
            f"labels of `{stored.name}`. Received: label_map={label_map}"
        )
    return label_map


def selected_classes(classes, default, num_classes: int):
    """Checks the argument `classes` of `load`.

    Args:
        classes: What `load` received.
        default: What `None` stands for, `None` for all.
        num_classes: How many there are.

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


def renumber(labels, classes):
    """Numbers the selected classes from 0.

    Args:
        labels: The class of each stored label.
        classes: The selected classes, in the order of their new numbers.

    Returns:
        The new number of each stored label, -1 for what is left out.
    """
    number = {c: n for n, c in enumerate(classes)}
    return tuple(number.get(label, -1) for label in labels)
