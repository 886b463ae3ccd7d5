"""Trains every method on the same images and compares their uncertainties.

    python examples/compare.py [--seeds 1] [--data digits] [--smoke]
        [--out results/compare]

A small network learns the digits 0 to 4 from 200 of scikit-learn's images.
Every method then predicts all other images of these digits, the same images
turned, blurred and noisy, and images of the digits 5 to 9. A good method is
accurate, gives the right probabilities, also under shift, and is uncertain on
digits that it never saw. All methods have the same network and their default
settings. Only MC dropout adds dropout, and Taylor VI and sampled VI replace
ReLU by GELU.

Prints a table and writes the table, all numbers and two pictures to a folder.
Other images, such as 28 x 28 digits, of which the network learns 0 to 7:

    python examples/compare.py --data mnist --known 8 --seeds 3
"""

import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from comparison import scores
from comparison.methods import METHODS
from comparison.pictures import draw
from comparison.task import Source
from comparison.training import Budget

from keras_bdl.extend import StoragePath

DIGITS = Budget(
    epochs=100, batch_size=32, members=5, samples=30, filters=(16, 32), units=32
)
IMAGES = Budget(
    epochs=20, batch_size=64, members=3, samples=30, filters=(16, 32), units=128
)
SMOKE = Budget(
    epochs=8, batch_size=64, members=2, samples=3, filters=(2,), units=4
)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--data", default="digits", help="a name in keras_bdl.datasets.SPECS")
    add("--data-dir", help="folder of TensorFlow Datasets")
    add("--known", type=int, default=5, help="number of known classes")
    add("--train-size", type=int, help="number of training images")
    add("--seeds", type=int, default=1, help="number of repetitions")
    add("--methods", nargs="+", choices=METHODS, help="default: all")
    add("--smoke", action="store_true", help="seconds only")
    add("--out", type=StoragePath, default="results/compare")
    return parser.parse_args()


def main():
    args = arguments()
    embedded = args.data == "digits"
    source = Source(
        args.data,
        args.data_dir,
        args.known,
        train_size=args.train_size or (200 if embedded else 4500),
        validation_size=100 if embedded else 500,
    )
    budget = DIGITS if embedded else IMAGES
    args.out.mkdir(parents=True, exist_ok=True)
    if args.smoke:
        budget = SMOKE
    methods = {name: METHODS[name] for name in args.methods or METHODS}
    runs, shown = [], scores.Shown()
    for seed, task in enumerate(source.tasks(args.seeds)):
        runs.append(scores.run(methods, task, budget, seed, shown))
        keras.utils.clear_session()
        # A run that is stopped keeps the seeds that it finished.
        found = scores.over_seeds(runs)
        text = f"{scores.table(found)}\n\n{scores.LEGEND}"
        (args.out / "table.txt").write_text(text + "\n")
        (args.out / "scores.json").write_text(json.dumps(found, indent=1))
        print(f"\n{text}")
    draw(args.out, found, shown)
    print(f"Table, numbers and pictures: {args.out.absolute()}")


if __name__ == "__main__":
    main()
