"""Compares the gradient noise of Radial and mean-field layers.

    python examples/radial_robustness.py [--smoke] [--seeds 3]
                                         [--out results/radial_robustness]

Runs three experiments of the Radial paper on one CPU and embedded data:
gradient noise against the scale of the weights, in a convolution with a
3x3x512x512 kernel (figure 6); gradient noise along the training of a small
convolutional network on scikit-learn's digits (figure 7); and the share of
settings of initial rho and learning rate with which such a network learns
(figure 4). Prints tables, and writes tables, pictures and all numbers to a
folder.
"""

import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from radial_experiments import grid
from radial_experiments import scale
from radial_experiments import training
from radial_experiments.settings import Run

from keras_bdl.extend import StoragePath


def plain(reports):
    """Turns every report in nested dictionaries into a dictionary."""
    if isinstance(reports, dict):
        return {str(name): plain(value) for name, value in reports.items()}
    return reports.to_dict()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--out",
        type=StoragePath,
        default="results/radial_robustness",
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args.smoke, args.seeds)

    print("[1/3] gradient noise against the scale of the weights", flush=True)
    by_scale, size = scale.measure(run)
    print("[2/3] gradient noise along training", flush=True)
    logs, by_epoch = training.measure(run)
    print("[3/3] initial rho by learning rate", flush=True)
    found = grid.measure(run)

    results = {
        "scale": plain(by_scale),
        "training": {"logs": logs, "reports": plain(by_epoch)},
        "robustness": {
            "rhos": run.rhos,
            "learning_rates": run.learning_rates,
            "accuracies": {kind: of.tolist() for kind, of in found.items()},
            "shares": grid.shares(found),
        },
    }
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    text = "\n\n".join(
        (
            f"Gradient of the means, kernel of {size} weights, "
            f"{run.draws} draws\n\n{scale.table(by_scale, size)}",
            f"Along training\n\n{training.table(logs, by_epoch)}",
            f"Test accuracy of {grid.SAMPLES} draws, means of {run.seeds} "
            f"seeds\n\n{grid.table(run, found)}",
        )
    )
    (args.out / "table.txt").write_text(text + "\n")
    for name, figure in (
        ("scale", scale.draw(run, by_scale, size)),
        ("training", training.draw(logs, by_epoch)),
        ("robustness", grid.draw(run, found)),
    ):
        with (args.out / f"{name}.png").replaced() as file:
            figure.savefig(file, dpi=150)
    print(f"\n{text}\n\nTables and pictures: {args.out.absolute()}")


if __name__ == "__main__":
    main()
