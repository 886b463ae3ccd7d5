"""Scores of every class."""

import numpy as np

from keras_bdl.evaluation.class_bins import ClassBins
from keras_bdl.evaluation.example_scores import ExampleScores

# A longer report shows only the classes with the lowest F1.
MOST_ROWS = 10
_NAMES = {"ece": "ECE", "f1": "F1", "iou": "IoU"}


def per_class_scores(scores: ExampleScores, bins: ClassBins) -> dict[str, list]:
    """Returns a list with one number for each class, by name.

    For class k, with `tp` the number of inputs of the class that were
    classified as k,

        precision = tp / number of inputs classified as k                 (1)
        recall = tp / number of inputs of class k                         (2)
        f1 = 2 tp / (denominator of (1) + denominator of (2))             (3)

    A ratio of zeros is NaN. `ece` is the calibration error of the probability
    of class k, with k against all other classes.

    Args:
        scores: The scores of the inputs.
        bins: The bins of the same inputs.
    """
    num_classes = len(bins.hits)
    count = np.bincount(scores.y, minlength=num_classes)
    claimed = np.bincount(scores.predicted, minlength=num_classes)
    hits = np.bincount(scores.y[scores.correct], minlength=num_classes)
    return {
        "precision": ratio_of_counts(hits, claimed),  # (1)
        "recall": ratio_of_counts(hits, count),  # (2)
        "f1": ratio_of_counts(2 * hits, claimed + count),  # (3)
        "ece": bins.calibration_errors().tolist(),
        "count": count.tolist(),
    }


def per_class_section(
    scores: dict[str, list], lowest: str = "f1"
) -> tuple[str, list]:
    """Returns the title and the rows of a table with a row for each class.

    Args:
        scores: Lists with a number for each class, such as the result of
            `per_class_scores`. The last one is `count`.
        lowest: The score that selects the classes of a long table. Defaults to
            `"f1"`.
    """
    num_classes = len(scores["count"])
    title, shown = "Classes", list(range(num_classes))
    if num_classes > MOST_ROWS:
        name = _NAMES[lowest]
        title = f"{MOST_ROWS} of {num_classes} classes, those of lowest {name}"
        # NaN, of classes that do not occur, comes last.
        shown = np.argsort(scores[lowest], kind="stable")[:MOST_ROWS].tolist()
    rows = [["class", *(_NAMES.get(name, name) for name in scores)]]
    for k in shown:
        numbers = [scores[name][k] for name in scores if name != "count"]
        rows.append([str(k), *numbers, str(scores["count"][k])])
    return title, rows


def ratio_of_counts(part: np.ndarray, whole: np.ndarray) -> list[float]:
    """Returns a ratio for each class, NaN for a ratio of zeros.

    Args:
        part: Numerators.
        whole: Denominators.
    """
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio.tolist()
