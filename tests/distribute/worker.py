"""One of the two workers that run all cases, one after another.

    python -m tests.distribute.worker <index> <ports> <folder>

Writes what they return to `<folder>/<index>.bdl`.
"""

import json
import os
import sys

import keras_bdl as bdl
from keras_bdl.saving import write_state
from tests.distribute.cases import CASES


def set_cluster(index, ports):
    addresses = [f"127.0.0.1:{port}" for port in ports.split(",")]
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": int(index)},
        }
    )


def main(index, ports, folder, *names):
    set_cluster(index, ports)
    strategy = bdl.distribute.strategy("auto")
    results = {}
    for name in names or CASES:
        of_case = os.path.join(folder, name)
        os.makedirs(of_case, exist_ok=True)
        results[name] = CASES[name](strategy, of_case)
        print(name, flush=True)
    write_state(os.path.join(folder, f"{index}.bdl"), results)


if __name__ == "__main__":
    main(*sys.argv[1:])
