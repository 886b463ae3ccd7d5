"""Do the defaults travel? Every method on a panel of data sets and networks.

    python examples/defaults.py --data-dir DIR [--tasks "digits" ...]
        [--methods IVON ...] [--seeds 1] [--out results/defaults] [--smoke]

Trains every method with its defaults and with other settings on each task of
the panel. A run that is finished is in a file of the folder, so a second
call goes on where the first one stopped; after a change of the library, name
another folder. The table shows, for each method and
task, the negative log-likelihood of the defaults and its distance to the best
setting of this task: the regret. "chosen without" is the setting that is best
on average over all *other* tasks, with its regret on this one. Defaults that
travel have a regret as small as that of the setting chosen without the task.

The tasks "digits", "series, LSTM" and "text, attention" need no files.
`examples/panel/prepare.py` prepares the data of the others.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from keras_bdl.extend import StoragePath
from panel.runs import kept
from panel.runs import table
from panel.settings import GRIDS
from panel.tasks import TASKS

WITHOUT_FILES = ("digits", "series, LSTM", "text, attention")
WORST = 3.0  # nats; a run that diverged counts as much


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--data-dir", help="folder of TensorFlow Datasets")
    add("--tasks", nargs="+", choices=TASKS, help="default: all with data")
    add("--methods", nargs="+", choices=GRIDS, help="default: all")
    add("--seeds", type=int, default=1, help="number of repetitions")
    add("--smoke", action="store_true", help="seconds only")
    add("--out", type=StoragePath, default="results/defaults")
    return parser.parse_args()


def regrets(losses):
    """Returns how much worse each setting is than the best of its task.

    `losses` is an array (settings, tasks).
    """
    finite = np.isfinite(losses)
    losses = np.where(finite, losses, 1e9)
    return np.where(finite, np.minimum(losses - losses.min(0), WORST), WORST)


def chosen_without(regret):
    """Returns, for each task, the best setting over all other tasks."""
    others = regret.sum(1, keepdims=True) - regret
    return others.argmin(0)


def lines(method, tasks, losses):
    """Returns the rows of a method; its first setting is the default."""
    regret, settings = regrets(losses), GRIDS[method]
    chosen = chosen_without(regret) if len(tasks) > 1 else None
    rows = []
    for t, task in enumerate(tasks):
        best = int(regret[:, t].argmin())
        row = [
            *(method, task, f"{losses[0, t]:.3f}", f"{regret[0, t]:.3f}"),
            name_of(settings[best]),
        ]
        if chosen is not None:
            of_others = regret[chosen[t], t]
            row += [name_of(settings[chosen[t]]), f"{of_others:.3f}"]
        rows.append(row)
    return rows


def name_of(setting):
    """Returns a setting in words."""
    given = ", ".join(f"{name} {value:g}" for name, value in setting.items())
    return given or "defaults"


HEADS = (
    *("method", "task", "NLL", "regret", "best setting"),
    *("chosen without", "its regret"),
)


def main():
    args = arguments()
    tasks = args.tasks or (TASKS if args.data_dir else WITHOUT_FILES)
    methods = args.methods or GRIDS
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for method in methods:
        losses = np.empty((len(GRIDS[method]), len(tasks)))
        for t, task in enumerate(tasks):
            for s, setting in enumerate(GRIDS[method]):
                of_seeds = [
                    kept(args, task, method, setting, seed)["nll"]
                    for seed in range(args.seeds)
                ]
                losses[s, t] = np.mean(of_seeds)
        rows += lines(method, list(tasks), losses)
        text = table(HEADS[: len(rows[0])], rows)
        (args.out / "table.md").write_text(text + "\n")
        print("\n".join(text.splitlines()[-len(tasks) :]))
    worst = max(float(row[3]) for row in rows)
    print(f"Largest regret of a default: {worst:.3f} nats")
    print(f"Table: {args.out.absolute() / 'table.md'}")


if __name__ == "__main__":
    main()
