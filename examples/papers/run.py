"""Runs the experiments of the papers.

    python examples/papers/run.py vogn/table1 [swag/figure6 ...] | all | --list
        [--scale small] [--seeds 3] [--strategy default] [--bfloat16]
        [--steps-per-execution 1] [--data-dir DIR] [--out results/papers]

A recipe is a table or a figure of a paper. `--scale paper` repeats the paper's
own experiment, with data from TensorFlow Datasets. `--scale small`, the
default, takes minutes: it uses digits of scikit-learn and small networks.
`--scale medium` uses MNIST and narrow networks; some recipes have this scale.
`--scale smoke` takes seconds, and its numbers mean nothing.

All results are below `--out`, a local folder or one in a bucket, such as
`gs://bucket/papers`. `<out>/<scale>/<recipe>` has the table or figure and all
its numbers. The same command continues a killed run, and skips finished runs. A
training that several recipes need runs once.
"""

import argparse
import errno
import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Behind the folder of this file, which has another `compiling.py`.
sys.path.append(str(Path(__file__).parents[2] / "tpu"))

import environment
import published
import recipe as recipes
from scales import SCALES

EXAMPLES = Path(__file__).parents[1]
# Errors of files that cannot be written, whatever the program does.
UNWRITABLE = (
    errno.EACCES,
    errno.EDQUOT,
    errno.ENOSPC,
    errno.EPERM,
    errno.EROFS,
)


def main():
    """Runs the recipes of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--list", action="store_true", help="all recipes")
    scales = parser.add_mutually_exclusive_group()
    scales.add_argument("--scale", choices=SCALES, default="small")
    scales.add_argument("--smoke", action="store_true", help="--scale smoke")
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        help="number of seeds; default: 3. `smoke` always has 1",
    )
    parser.add_argument(
        "--strategy",
        default="default",
        help="a name of keras_bdl.distribute.strategy, such as mirrored",
    )
    parser.add_argument(
        "--bfloat16", action="store_true", help="mixed precision"
    )
    parser.add_argument(
        "--steps-per-execution", type=int, default=1, help="passed to `compile`"
    )
    parser.add_argument(
        "--data-dir", help="folder of TensorFlow Datasets and of other files"
    )
    parser.add_argument(
        "--out", default="results/papers", help="local, or gs://bucket/folder"
    )
    args = parser.parse_args()

    scale = "smoke" if args.smoke else args.scale
    known, of_scale = recipes.names(), recipes.names(scale)
    if args.list:
        for name in of_scale:
            print(f"{name:18}{recipes.load(name, scale).title}")
        return
    chosen = of_scale if "all" in args.recipes else args.recipes
    for name in args.recipes:
        if name not in (*known, "all"):
            parser.error(
                "there is no such recipe, --list prints all. "
                f"Received: {name!r}"
            )
        if name not in (*of_scale, "all"):
            parser.error(
                f"--scale {scale} has the recipes {', '.join(of_scale)}. "
                f"Received: {name!r}"
            )
    if not chosen:
        parser.error("name some recipes, or `all`; --list prints them")
    for option in ("seeds", "steps_per_execution"):
        value = getattr(args, option)
        if value < 1:
            option = option.replace("_", "-")
            parser.error(f"--{option} must be at least 1. Received: {value}")
    environment.prepare(sys.argv[1:], default=parser.get_default("strategy"))
    # Not at the top, so that `--list` answers at once.
    from keras_bdl.extend import StoragePath

    try:
        args.out = StoragePath(args.out)
        args.out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        parser.error(f"--out must be a folder to write to: {error}")
    seeds = 1 if scale == "smoke" else args.seeds
    try:
        run(chosen, scale, seeds, args)
    except KeyboardInterrupt:
        print("\nThe same command continues from here.", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise SystemExit(f"Files cannot be written: {error}") from error


def run(chosen, scale, seeds, args):
    """Runs recipes, one after the other.

    Args:
        chosen: Names of the recipes.
        scale: The scale.
        seeds: Number of seeds.
        args: The arguments of the command line.
    """
    import keras  # not at the top, so that `--list` answers at once
    from outcome import Outcome
    from session import Session

    sys.path.append(str(EXAMPLES))

    import keras_bdl as bdl

    # Traces keep millions of objects alive. With the default thresholds, the
    # garbage collection of these objects would take a tenth of the time.
    gc.set_threshold(100_000, 50, 100)

    # Several machines need the strategy before any computation.
    strategy = _strategy(args.strategy)
    _check_hosts(strategy)
    folder = args.out / scale
    session = Session(
        scale,
        folder / "runs",
        strategy,
        seeds,
        args.data_dir,
        args.steps_per_execution,
    )
    for number, name in enumerate(chosen, 1):
        if args.bfloat16:  # again for each recipe: `clear_session` resets it
            keras.config.set_dtype_policy("mixed_bfloat16")
        recipe = recipes.load(name, scale)
        print(f"[{number}/{len(chosen)}] {name}: {recipe.title}", flush=True)
        start = time.perf_counter()
        shown = [
            (importlib.import_module(f"show.{module}"), arguments)
            for module, arguments in recipe.show.items()
        ]
        results = _results(recipe, session)
        if not bdl.distribute.is_chief(strategy):
            continue
        out = folder / name
        out.mkdir(parents=True, exist_ok=True)
        outcome = Outcome(recipe, session, results, out)
        text = "\n\n".join(
            module.show(outcome, arguments) for module, arguments in shown
        )
        _write(outcome, text)
        print(f"\n{text}\n\n{out.absolute()}", end=", ")
        print(f"{time.perf_counter() - start:.0f} s\n", flush=True)
        # At `smoke`, garbage collection would take longer than a recipe.
        keras.utils.clear_session(free_memory=scale != "smoke")
        if "matplotlib.pyplot" in sys.modules:  # it keeps all figures
            sys.modules["matplotlib.pyplot"].close("all")


def _strategy(name):
    """Returns a strategy, or ends the program with an error message."""
    import keras_bdl as bdl

    try:
        return bdl.distribute.strategy(name)
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"--strategy: {error}") from error


def _check_hosts(strategy):
    """Ends the program on a pod, whose hosts would lack the data."""
    hosts = environment.num_hosts(strategy)
    if hosts > 1:
        raise SystemExit(
            "This program is for TPUs of one host, since it reads the data on "
            "one. On a pod, use `tpu/train.py`. "
            f"Received: a TPU of {hosts} hosts"
        )


def _results(recipe, session):
    """Returns a list with a `Result` for each seed, by cell."""
    from measures import Result

    results = {}
    total = len(recipe.cells) * session.seeds
    for i, cell in enumerate(recipe.cells):
        results[cell] = []
        for seed in range(session.seeds):
            done = i * session.seeds + seed + 1
            print(
                f"  [{done}/{total}] {cell.where}, {cell.label}, seed {seed}",
                flush=True,
            )
            predictions, trained = session.predicted(cell, seed, recipe.ood)
            results[cell].append(Result(cell, predictions, trained, recipe.ood))
    return results


def _write(outcome, text):
    """Writes the report of a recipe, and all its numbers."""
    recipe, seeds = outcome.recipe, outcome.session.seeds
    known = published.published()
    source, paper = known[recipe.name], known["papers"][recipe.paper]
    number = "1 seed" if seeds == 1 else f"{seeds} seeds"
    head = (
        f"# {recipe.title}\n\n{paper['title']}, {paper['arxiv']}, "
        f"{source['source']}; scale {recipe.scale}, {number}.\n\n"
    )
    claims = "\n".join(f"- {claim}" for claim in source["claims"])
    (outcome.folder / "report.md").write_text(
        f"{head}{text}\n\nThe claims of the paper:\n\n{claims}\n"
    )
    numbers = [
        {
            "data": cell.data,
            "test": cell.test,
            "network": cell.network,
            "method": cell.method,
            "options": dict(cell.options),
            "seeds": [result.numbers() for result in of_seeds],
        }
        for cell, of_seeds in outcome.results.items()
    ]
    (outcome.folder / "results.json").write_text(
        json.dumps(numbers, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
