"""The scores of every method, over several seeds, and their table."""

import dataclasses
import time

import numpy as np

import keras_bdl as bdl
from comparison.task import SEVERITIES
from comparison.training import Training

# Heading, width and number of decimals. The lines fit a terminal.
COLUMNS = {
    "accuracy": ("accuracy", 9, 3),
    "nll": ("NLL", 10, 3),
    **{f"shift {s}": (f"shift {s}", 9, 2) for s in SEVERITIES},
    "unknown": ("unknown", 10, 3),
    "seconds": ("time", 5, 0),
}
NAME_WIDTH = 19
LEGEND = """\
accuracy, NLL: of new images of the known classes. shift 1, 3, 5: NLL of these
images turned, blurred or noisy, with a severity of 1, 3 and 5; mean of the
three. unknown: probability that an image of an unknown class has a higher
entropy than one of a known class (AUROC). time: seconds of training. Sorted by
the NLL under shift."""


@dataclasses.dataclass
class Shown:
    """What the pictures show: predictions of the first seed, by method."""

    known: dict = dataclasses.field(default_factory=dict)
    unknown: dict = dataclasses.field(default_factory=dict)
    labels: np.ndarray | None = None  # of the known images


def run(methods, task, budget, seed, shown):
    """Trains and scores methods.

    Args:
        methods: A part of `METHODS`.
        task: The `Task`.
        budget: The `Budget`.
        seed: The seed.
        shown: The `Shown`, which keeps the predictions of the first seed.

    Returns:
        A dict from the name of a method to its scores.
    """
    training = Training(task, budget, seed)
    y = task.test[1]
    shifted = {s: task.shifted(s, seed) for s in SEVERITIES}
    scores = {}
    for number, (method, train) in enumerate(methods.items(), 1):
        print(f"[{number}/{len(methods)}] {method}, seed {seed}", flush=True)
        training.seconds, start = 0.0, time.perf_counter()
        before = training.spent
        predict = train(training)
        own = time.perf_counter() - start - (training.spent - before)
        known, unknown = predict(task.test[0]), predict(task.unknown)
        report = bdl.evaluate(known, y, ood=unknown)
        found = {
            "accuracy": report.accuracy,
            "nll": report.nll,
            "brier": report.brier,
            "ece": report.ece,
            "unknown": report.ood["ood"]["entropy"]["auroc"],
            "seconds": training.seconds + own,
        }
        for severity, images in shifted.items():
            reports = {
                kind: bdl.evaluate(predict(x), y) for kind, x in images.items()
            }
            for kind, of_kind in reports.items():
                found[f"{kind} {severity} accuracy"] = of_kind.accuracy
                found[f"{kind} {severity} nll"] = of_kind.nll
            found[f"shift {severity}"] = float(
                np.mean([of_kind.nll for of_kind in reports.values()])
            )
        scores[method] = found
        if seed == 0:
            shown.known[method], shown.unknown[method] = known, unknown
            shown.labels = y
    return scores


def over_seeds(runs):
    """Returns the scores of all seeds, sorted by the NLL under shift.

    Args:
        runs: List of results of `run`.

    Returns:
        A dict from a method to a dict from a score to the list of its values.
    """
    collected = {
        method: {name: [r[method][name] for r in runs] for name in first}
        for method, first in runs[0].items()
    }
    return dict(sorted(collected.items(), key=lambda item: _shift(item[1])))


def _shift(scores):
    return np.mean([scores[f"shift {s}"] for s in SEVERITIES])


def table(scores):
    """Returns a table, one line for a method.

    Args:
        scores: Result of `over_seeds`.
    """
    head = "".join(name.rjust(width) for name, width, _ in COLUMNS.values())
    lines = ["method".ljust(NAME_WIDTH) + head]
    for method, found in scores.items():
        cells = (
            _cell(found[name], decimals).rjust(width)
            for name, (_, width, decimals) in COLUMNS.items()
        )
        lines.append(method.ljust(NAME_WIDTH) + "".join(cells))
    return "\n".join(lines)


def _cell(values, decimals):
    """Returns a mean, and its standard error in units of the last digit."""
    text = f"{np.mean(values):.{decimals}f}"
    if len(values) > 1 and decimals:
        error = np.std(values, ddof=1) / len(values) ** 0.5
        text += f"({error * 10**decimals:.0f})"
    return text
