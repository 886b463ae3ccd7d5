"""Every method at its defaults on a task of the panel: all scores, and time.

    python examples/leaderboard.py --data-dir DIR [--task fashion]
        [--methods IVON ...] [--seeds 3] [--out results/leaderboard] [--smoke]

"turned": images turned by 20 degrees. "noise": images with noise of half their
standard deviation. "unknown": AUROC of the entropy, and of the mutual
information of label and weights, against images of another data set. "time":
that of the training, in units of SGD. A run that is finished is in a file of
the folder, so a second call goes on where the first one stopped; after a change
of the library, name another folder.
`examples/panel/prepare.py` prepares the data.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from keras_bdl.extend import StoragePath
from panel.runs import PANEL_METHODS
from panel.runs import kept
from panel.runs import table
from panel.tasks import TASKS

BASE = "SGD"
# Heading, name of the score and number of decimals.
IMAGES = (
    ("accuracy", "accuracy", 3),
    ("NLL", "nll", 3),
    ("ECE", "ece", 3),
    ("turned: NLL", "turned nll", 2),
    ("noise: NLL", "noise nll", 2),
    ("unknown: H", "unknown, entropy", 2),
    ("unknown: MI", "unknown, mutual_information", 2),
)
CLASSES = IMAGES[:3]
NUMBERS = (("NLL", "nll", 3), ("RMSE", "rmse", 3))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--data-dir", help="folder of TensorFlow Datasets")
    add("--task", choices=TASKS, default="fashion")
    add("--methods", nargs="+", choices=PANEL_METHODS, help="default: all")
    add("--seeds", type=int, default=3, help="number of repetitions")
    add("--smoke", action="store_true", help="seconds only")
    add("--out", type=StoragePath, default="results/leaderboard")
    return parser.parse_args()


def cell(values, decimals):
    """Returns a mean and its standard error, or a dash.

    Runs without a finite value are counted.
    """
    runs = len(values)
    values = [v for v in values if v is not None and np.isfinite(v)]
    if not values:
        return "–"
    text = f"{np.mean(values):.{decimals}f}"
    if len(values) > 1:
        error = np.std(values, ddof=1) / len(values) ** 0.5
        text += f" ± {error:.{decimals}f}"
    if len(values) < runs:
        text += f" ({runs - len(values)} of {runs} without)"
    return text


def columns(found):
    """Returns the columns of some names of scores."""
    if "rmse" in found:
        return NUMBERS
    shown = [c for c in IMAGES if c[1] in found]
    return shown or CLASSES


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    chosen = args.methods or list(PANEL_METHODS)
    methods = [BASE, *(m for m in chosen if m != BASE)]
    found = {}
    for method in methods:
        found[method] = [
            kept(args, args.task, method, {}, seed)
            for seed in range(args.seeds)
        ]
        # Some runs lack scores, such as those that diverged.
        shown = columns({n for runs in found.values() for r in runs for n in r})
        heads = ["method", *(head for head, _, _ in shown), "time / SGD"]
        rows = []
        for name, runs in found.items():
            cells = [cell([r.get(n) for r in runs], d) for _, n, d in shown]
            times = [
                run["seconds"] / base["seconds"]
                for run, base in zip(runs, found[BASE], strict=True)
            ]
            rows.append([name, *cells, f"{np.median(times):.1f}"])
        text = table(heads, rows)
        (args.out / f"{args.task}.md").write_text(text + "\n")
        print(text.splitlines()[-1], flush=True)
    print(f"\n{text}\nTable: {args.out.absolute() / args.task}.md")


if __name__ == "__main__":
    main()
