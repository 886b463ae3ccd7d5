"""One run of the panel: a method with a setting on a task with a seed."""

import functools
import hashlib
import json
import time

import keras
from comparison.methods import ADAM_RATE
from comparison.methods import METHODS
from comparison.training import Budget
from comparison.training import Training

import keras_bdl as bdl
from panel.tasks import TASKS
from panel.tasks import shortened


class PanelTraining(Training):
    """The networks of one task and one seed."""

    def __init__(self, task, seed):
        budget = Budget(
            epochs=task.epochs,
            batch_size=task.batch_size,
            members=3,
            samples=30,
            filters=(),
            units=0,
        )
        super().__init__(task, budget, seed)
        self.loss = task.loss

    def network(self, **options):
        return self.task.build(**options)


def adam(training, learning_rate=ADAM_RATE):
    model = training.fit(
        training.start(),
        keras.optimizers.Adam(training.cosine(learning_rate)),
    )
    return lambda x: bdl.predict(model, x, batch_size=256, verbose=0)


PANEL_METHODS = {"Adam": adam, **METHODS}


def scores(task, predict, seconds):
    """Returns the scores of a method as a dict of floats."""
    x, y = task.test
    known = predict(x)
    if task.regression:
        report = bdl.evaluate(known, y)
        found = {"nll": -report.log_likelihood, "rmse": report.rmse}
    else:
        ood = None if task.unknown is None else predict(task.unknown)
        report = bdl.evaluate(known, y, ood=ood)
        found = {
            "accuracy": report.accuracy,
            "nll": report.nll,
            "ece": report.ece,
        }
        if ood is not None:
            found |= {
                f"unknown, {name}": report.ood["ood"][name]["auroc"]
                for name in ("entropy", "mutual_information")
                if name in report.ood["ood"]
            }
        for name, images in task.shifted.items():
            shifted = bdl.evaluate(predict(images), y[: len(images)])
            found[f"{name} nll"] = shifted.nll
            found[f"{name} accuracy"] = shifted.accuracy
    found["seconds"] = seconds
    return {name: float(value) for name, value in found.items()}


def key(task, method, setting, seed, smoke=False):
    """Returns the name of the file of a run."""
    facts = TASKS[task].keywords
    known = {k: v for k, v in facts.items() if not callable(v)}
    text = json.dumps(
        [task, known, method, setting, seed, smoke], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=2)
def loaded(task, seed, data_dir):
    """Returns the task with the data of a seed."""
    return TASKS[task](seed, data_dir)


def run(task, method, setting, seed, data_dir, smoke=False):
    """Trains and scores; a setting is a dict of arguments of the method."""
    data = loaded(task, seed, data_dir)
    if smoke:
        data = shortened(data, 100)
    training = PanelTraining(data, seed)
    start = time.perf_counter()
    try:
        predict = PANEL_METHODS[method](training, **setting)
        found = scores(data, predict, time.perf_counter() - start)
    except ValueError as error:
        if "must be finite" not in str(error):
            raise
        # The run diverged.
        found = {"nll": float("inf"), "seconds": time.perf_counter() - start}
    keras.utils.clear_session()
    return found


def kept(args, task, method, setting, seed):
    """Returns the scores of a run, from its file if it is finished.

    `args` has the options `out`, `data_dir` and `smoke`.
    """
    name = key(task, method, setting, seed, args.smoke)
    file = args.out / f"{name}.json"
    if file.exists():
        return json.loads(file.read_text())["scores"]
    print(f"{task}: {method} {setting or 'defaults'}, seed {seed}", flush=True)
    found = run(task, method, setting, seed, args.data_dir, args.smoke)
    facts = {"task": task, "method": method, "setting": setting, "seed": seed}
    file.write_text(json.dumps({**facts, "scores": found}))
    return found


def table(heads, rows):
    """Returns a table in Markdown."""
    return "\n".join(
        "| " + " | ".join(row) + " |"
        for row in (heads, ["---"] * len(heads), *rows)
    )
