"""One of the two workers, which run all cases in turn.

    TF_CONFIG=... python -m tests.distribute.worker <index> <folder>

The process writes the results of the cases to `<folder>/<index>.bdl`.
"""

import os
import sys

import keras_bdl as bdl
from keras_bdl._saving._state_file import write_state
from tests.distribute.cases import CASES
from tests.distribute.cases import CASES_OF_WORKERS


def main(index, folder, *names):
    strategy = bdl.distribute.strategy("auto")
    results = {}
    for name in names or CASES_OF_WORKERS:
        of_case = os.path.join(folder, name)
        os.makedirs(of_case, exist_ok=True)
        results[name] = CASES[name](strategy, of_case)
        print(name, flush=True)
    write_state(os.path.join(folder, f"{index}.bdl"), results)


if __name__ == "__main__":
    main(*sys.argv[1:])
