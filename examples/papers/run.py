"""Runs the experiments of the papers.

    python examples/papers/run.py vogn/table1 [swag/figure6 ...] | all | --list
        [--scale small] [--seeds 3] [--strategy default] [--bfloat16]
        [--steps-per-execution 1] [--data-dir DIR] [--out results/papers]

A recipe is a table or a figure of a paper. `--scale paper` is the paper's own
experiment, with its data from TensorFlow Datasets; `small`, the default, has
digits of scikit-learn and small networks in their place, and takes minutes;
`smoke` takes seconds, and its numbers mean nothing. What was killed goes on
where it was, what is done is not done again, and what two recipes share is
done once: everything is kept below `--out`, and `<out>/<scale>/<recipe>` gets
the table or figure and all its numbers.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import published
import recipe as recipes

EXAMPLES = Path(__file__).parents[1]


def main():
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--list", action="store_true", help="all recipes")
    parser.add_argument("--scale", choices=recipes.SCALES, default="small")
    parser.add_argument("--smoke", action="store_true", help="--scale smoke")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--strategy", default="default")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--steps-per-execution", type=int, default=1)
    parser.add_argument("--data-dir", help="of TensorFlow Datasets")
    parser.add_argument("--out", type=Path, default=Path("results/papers"))
    args = parser.parse_args()

    known = recipes.names()
    if args.list:
        for name in known:
            print(f"{name:18}{recipes.load(name, args.scale).title}")
        return
    chosen = known if args.recipes == ["all"] else args.recipes
    unknown = [name for name in chosen if name not in known]
    if unknown:
        parser.error(f"--list shows all recipes. Received: {unknown[0]!r}")
    if not chosen:
        parser.error("name some recipes, or `all`; --list shows them")
    if args.seeds < 1:
        parser.error(f"--seeds must be at least 1. Received: {args.seeds}")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out must be a folder to write to: {error}")
    scale = "smoke" if args.smoke else args.scale
    seeds = 1 if scale == "smoke" else args.seeds
    run(chosen, scale, seeds, args)


def run(chosen, scale, seeds, args):
    """Runs recipes, one after the other."""
    import keras  # only now: `--list` and mistakes are quick
    from session import Session

    sys.path.append(str(EXAMPLES))

    import keras_bdl as bdl

    # Before anything is computed, as several machines want it.
    strategy = _strategy(args.strategy)
    folder = args.out / scale
    if args.bfloat16:
        keras.config.set_dtype_policy("mixed_bfloat16")
    session = Session(
        scale,
        folder / "runs",
        strategy,
        args.data_dir,
        args.steps_per_execution,
    )
    for number, name in enumerate(chosen, 1):
        recipe = recipes.load(name, scale)
        print(f"[{number}/{len(chosen)}] {name}: {recipe.title}", flush=True)
        start = time.perf_counter()
        shows = [importlib.import_module(f"show.{s}") for s in recipe.show]
        found = _results(recipe, session, seeds)
        if not bdl.distribute.is_chief(strategy):
            continue
        out = folder / name
        out.mkdir(parents=True, exist_ok=True)
        # Without cells, a module of `show` runs what it needs by itself.
        needed = (found,) if found else (session, seeds)
        text = "\n\n".join(show.show(recipe, *needed, out) for show in shows)
        _write(recipe, scale, seeds, found, text, out)
        print(f"\n{text}\n\n{out.resolve()}", end=", ")
        print(f"{time.perf_counter() - start:.0f} s\n", flush=True)
        keras.backend.clear_session()


def _strategy(name):
    """The strategy of that name, if there is one, and its devices."""
    import keras_bdl as bdl

    try:
        return bdl.distribute.strategy(name)
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"--strategy: {error}") from error


def _results(recipe, session, seeds):
    """Trains and predicts all that a recipe needs."""
    from measures import Result

    results = {}
    total = len(recipe.cells) * seeds
    for i, cell in enumerate(recipe.cells):
        results[cell] = []
        for seed in range(seeds):
            done = i * seeds + seed + 1
            print(
                f"  [{done}/{total}] {cell.where}, {cell.label}, seed {seed}",
                flush=True,
            )
            predictions, trained = session.predicted(cell, seed, recipe.ood)
            results[cell].append(Result(cell, predictions, trained, recipe.ood))
    return results


def _write(recipe, scale, seeds, results, text, out):
    """Writes the table, and all numbers."""
    known = published.published()
    source, paper = known[recipe.name], known["papers"][recipe.paper]
    head = (
        f"# {recipe.title}\n\n{paper['title']}, {paper['arxiv']}, "
        f"{source['source']}; scale {scale}, {seeds} seeds.\n\n"
    )
    claims = "\n".join(f"- {claim}" for claim in source["claims"])
    (out / "report.md").write_text(
        f"{head}{text}\n\nWhat the paper says:\n\n{claims}\n"
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
        for cell, of_seeds in results.items()
    ]
    (out / "results.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
