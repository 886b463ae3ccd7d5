"""Compiles training and prediction steps for TPUs, without a TPU.

    python tpu/compile_check.py [--topology v5e:2x2] [--only CASE ...]
        [--steps train predict] [--batch SIZE] [--smoke] [--list] [--table]
        [--record] [--keep FOLDER] [--out results/compile_check.json]

Needs `pip install -e ".[tpu]"`, on Linux. A case is a method and a network,
such as `vogn/resnet_18`; `*/small` are all methods with the small network.
Without `--only`, the cases of the papers are compiled. For both steps of each
case the script prints OK or the operations that a TPU does not have. It also
prints the operations and bytes of the step, the memory that a chip needs, and
the bytes that chips send to each other; these must be what the method needs and
no more. The next line compares the costs with those in `costs.json`. Exits with
1 if anything fails, or if a step costs more than recorded. Adds the results to
those in `--out`.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import costs
import step_time

HERE = Path(__file__).parent
STEPS = ("train", "predict")
SMOKE = ("atmc/small", "vogn/small")
# Besides the gradients, replicas may exchange a few numbers.
FEW_BYTES = 4096


def problems(found, step, memory):
    """Returns what is wrong with a step, in sentences.

    Args:
        found: What is known of it.
        step: `"train"` or `"predict"`.
        memory: Bytes of the memory of a chip.
    """
    if "error" in found:
        return [" ".join(found["error"].split())]
    wrong = list(found["complaints"])
    needed = sum(found["memory"].values())
    if needed > memory:
        wrong.append(
            f"needs {needed / 2**30:.2f} GiB of {memory / 2**30:.2f} GiB"
        )
    sent, copies = found["collective_bytes"], found["reduced"]
    if step == "predict":
        copies = 0
    if copies is not None:
        expected = copies * found["weight_bytes"]
        if not expected <= sent <= 1.01 * expected + FEW_BYTES:
            wrong.append(
                f"chips add up {sent} bytes, and {copies} times the weights "
                f"are {expected}"
            )
    return wrong


def run(*command):
    """Runs a script of this folder; prints a dot each half minute."""
    errors = tempfile.TemporaryFile("w+")
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, HERE / command[0], *map(str, command[1:])],
        stderr=errors,
        env={**os.environ, "PYTHONPATH": path},
    )
    while True:
        try:
            if process.wait(timeout=30):
                errors.seek(0)
                raise SystemExit(f"\n{command[0]} failed:\n{errors.read()}")
            return
        except subprocess.TimeoutExpired:
            print(".", end="", flush=True)


def check(name, steps, topology, batch, folder):
    """Lowers and compiles a case; yields the facts of each step."""
    devices = step_time.devices_in(topology)
    start = time.perf_counter()
    print(f"{name}: lowering", end=" ", flush=True)
    run("lowering.py", name, devices, batch or 0, folder, *steps)
    print(f"{time.perf_counter() - start:.0f} s", flush=True)
    for step in steps:
        print(f"  {step}: compiling", end=" ", flush=True)
        known = json.loads((folder / f"{step}.json").read_text())
        found = {"case": name, "step": step, "topology": topology, **known}
        if "error" not in found:
            result = folder / "compiled.json"
            program = folder / f"{step}.mlir"
            run("compiling.py", program, topology, result)
            compiled = json.loads(result.read_text())
            compiled["versions"] = known["versions"] | compiled["versions"]
            found |= compiled
        memory = step_time.chip_of(topology).memory
        found["problems"] = problems(found, step, memory)
        print(in_words(found), flush=True)
        yield found


def in_words(found):
    """Returns the line to print for a step."""
    if "flops" not in found:
        return f"FAILED: {found['problems'][0][:1000]}"
    words = "; ".join(found["problems"])
    return (
        f"{found['compile_seconds']:.0f} s, "
        f"{'FAILED: ' + words if words else 'OK'}, "
        f"{found['flops'] / 1e12:.4g} Tflop, {found['bytes'] / 1e9:.4g} GB, "
        f"{sum(found['memory'].values()) / 2**30:.3g} GiB a chip, "
        f"{found['collectives']} all-reduces of "
        f"{found['collective_bytes'] / 1e6:.4g} MB"
    )


def compare(found, record):
    """Prints how the costs of a step differ; returns what costs too much.

    Args:
        found: What `check` found.
        record: Whether its costs are the new recorded ones.
    """
    if not {"flops", "result_bytes"} <= found.keys():
        return []
    record = record and not found["problems"]
    before = costs.recorded(found)
    if before is None:
        print("    not in costs.json", end="")
    else:
        print(f"    costs.json: {costs.changes(found, before)}", end="")
    if record:
        costs.record(found)
    print(", recorded" if record else "", flush=True)
    return costs.increases(found, before) if before and not record else []


def table(results):
    """Returns a table of all results, in Markdown."""
    good = [found for found in results if not found["problems"]]
    bad = [found for found in results if found["problems"]]
    times = [step_time.times(f, f["topology"])["step"] for f in good]
    needed = [sum(found["memory"].values()) for found in good]
    columns = [
        ("", ["OK"] * len(good)),
        _scaled("flop", [found["flops"] for found in good]),
        _scaled("B moved", [found["bytes"] for found in good]),
        _scaled("B needed", needed),
        ("all-reduces", [found["collectives"] for found in good]),
        _scaled("B", [found["collective_bytes"] for found in good]),
        ("ms on paper", [f"{1e3 * seconds:.3g}" for seconds in times]),
        ("s to compile", [f"{f['compile_seconds']:.0f}" for f in good]),
    ]
    heads, entries = zip(*columns, strict=True)
    head = ("case", "step", "chips", "batch", *heads)
    lines = [head, ["---"] * len(head)]
    rows = [*zip(*entries, strict=True), *[["FAILED", *"-------"]] * len(bad)]
    for found, row in zip([*good, *bad], rows, strict=True):
        start = (found[key] for key in costs.STEP)
        lines.append((*start, *row))
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _scaled(unit, values):
    """Returns the head and the entries of a column, such as GB or MB."""
    power = int(math.log10(max([1, *values])) // 3)
    prefix = ("", "k", "M", "G", "T", "P")[power]
    return f"{prefix}{unit}", [f"{v / 1000**power:.3g}" for v in values]


def local(path):
    """Returns the path of a local file or folder, as an argument."""
    # Also a slip such as "gs:/bucket", which would be a local folder "gs:".
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise argparse.ArgumentTypeError(f"must be local. Received: {path}")
    return Path(path)


def main():
    """Parses and checks the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--topology", default="v5e:2x2", help="as JAX names it")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="or */small")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument(
        "--table", action="store_true", help="of the results in --out"
    )
    parser.add_argument(
        "--record", action="store_true", help="write costs.json"
    )
    parser.add_argument("--batch", type=int, help="of all chips together")
    parser.add_argument("--smoke", action="store_true", help="a minute only")
    parser.add_argument("--keep", type=local, help="folder for the programs")
    parser.add_argument(
        "--out", type=local, default="results/compile_check.json"
    )
    args = parser.parse_args()
    if args.list:
        run("cases.py")
        return
    if args.table:
        print(table(json.loads(args.out.read_text())))
        return
    from cases import CASES
    from cases import Case
    from cases import named

    names = named(args.only or (SMOKE if args.smoke else CASES))
    for name in names:  # before the first of them starts
        Case(name, args.batch).batch_of(step_time.devices_in(args.topology))

    args.out.parent.mkdir(parents=True, exist_ok=True)
    failed, increases = False, []
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            if args.keep:
                folder = args.keep / name.replace("/", "-")
                folder.mkdir(parents=True, exist_ok=True)
            for found in check(
                name, args.steps, args.topology, args.batch, folder
            ):
                increases += compare(found, args.record)
                results = add(args.out, found)
                failed |= bool(found["problems"])
    print(f"\n{table(results)}\n\nResults: {args.out.resolve()}")
    if increases:
        print("Costs more than recorded:", *increases, sep="\n  ")
    sys.exit(int(failed or bool(increases)))


def add(path, found):
    """Adds a result to a file, in place of an older one of the same step."""
    results = json.loads(path.read_text()) if path.exists() else []
    key = ("case", "step", "topology", "batch_size")
    results = [r for r in results if any(r[k] != found[k] for k in key)]
    results.append(found)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
