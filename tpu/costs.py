"""Recorded costs of steps, and which steps cost more than recorded.

`compile_check.py --record` writes the costs to `costs.json`. A cost is a number
of a step on one chip:

    flops               operations
    bytes               bytes that the chip moves
    collectives         how often chips exchange numbers
    collective_bytes    bytes that they exchange
    lowered_collectives collectives before XLA merges them
    result_bytes        bytes of all results before XLA merges operations

The last two come from TensorFlow, the others from XLA for TPUs.
"""

import json
from pathlib import Path

PATH = Path(__file__).parent / "costs.json"
STEP = ("case", "step", "topology", "batch_size")
COUNTS = ("collectives", "lowered_collectives")
AMOUNTS = ("flops", "bytes", "collective_bytes", "result_bytes")
# An amount may grow by this fraction.
MARGIN = 0.1


def recorded(found, path=PATH):
    """Returns the recorded costs of a step, or `None` for an unknown step.

    Args:
        found: Has the case, the step, the topology and the size of the batch.
        path: The file. Defaults to `costs.json` in this folder.
    """
    known = json.loads(path.read_text()) if path.exists() else []
    same = (e for e in known if all(e[key] == found[key] for key in STEP))
    return next(same, None)


def record(found, path=PATH):
    """Adds the costs of a step to a file, in place of the older ones.

    Args:
        found: What `compile_check.check` found.
        path: The file. Defaults to `costs.json` in this folder.
    """
    known = json.loads(path.read_text()) if path.exists() else []
    known = [e for e in known if any(e[key] != found[key] for key in STEP)]
    names = (*STEP, *COUNTS, *AMOUNTS, "versions")
    known.append({name: found[name] for name in names})
    known.sort(key=lambda entry: [entry[key] for key in STEP])
    # One step a line shows well what a change of the file changes.
    lines = ",\n".join(json.dumps(entry) for entry in known)
    path.write_text(f"[\n{lines}\n]\n")


def increases(found, before):
    """Returns what costs more than recorded, in sentences.

    One more collective is too much, and so is an amount that is larger by more
    than 10 %.

    Args:
        found: Costs of a step, some or all.
        before: What `recorded` returned.
    """
    sentences = []
    for name in (*COUNTS, *AMOUNTS):
        if name not in found:
            continue
        now, then = found[name], before[name]
        margin = 0 if name in COUNTS else MARGIN
        if now > (1 + margin) * then:
            percent = f" ({now / then - 1:+.1%})" if then else ""
            sentences.append(
                f"{before['case']}, {before['step']}: {name} {now:,.0f}, "
                f"recorded {then:,.0f}{percent}"
            )
    return sentences


def changes(found, before):
    """Returns how the amounts differ from the recorded ones, in words.

    Args:
        found: All costs of a step.
        before: What `recorded` returned.
    """
    words = [
        f"{name} {found[name] / before[name] - 1:+.1%}"
        for name in AMOUNTS
        if found[name] != before[name] and before[name]
    ]
    words += [
        f"{name} {before[name]} -> {found[name]}"
        for name in COUNTS
        if found[name] != before[name]
    ]
    words += [
        f"{name} {before['versions'].get(name)} -> {version}"
        for name, version in found["versions"].items()
        if version != before["versions"].get(name)
    ]
    return ", ".join(words) or "as recorded"
