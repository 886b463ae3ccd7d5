"""One of the workers that the tests of distribution start.

    python worker.py <index> <ports> <folder> <case> ...

Runs the cases one after another and writes `<folder>/<index>.bdl`.
"""

import json
import os
import sys
import time
import traceback


def main(index, ports, folder, *names):
    addresses = [f"127.0.0.1:{port}" for port in ports.split(",")]
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": int(index)},
        }
    )
    import keras_bdl as bdl

    strategy = bdl.distribute.strategy("auto")

    from keras_bdl.saving import write_state
    from tests.distribute.cases import CASES

    results = {}
    for name in names or CASES:
        start = time.time()
        try:
            results[name] = CASES[name](strategy, folder)
        except Exception:
            results[name] = {"error": traceback.format_exc()}
            print(traceback.format_exc()[-1500:])
        print(name, round(time.time() - start, 1), flush=True)
    write_state(os.path.join(folder, f"{index}.bdl"), results)


if __name__ == "__main__":
    main(*sys.argv[1:])
