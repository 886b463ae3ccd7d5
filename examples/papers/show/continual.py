"""Continual learning: tasks that are learned one after the other."""

import dataclasses
import functools

import continual_learning
import data as data_sets
import keras
import numpy as np
import published
from files import digested
from files import kept

import keras_bdl as bdl
from show.table import markdown
from show.table import mean_and_error

# Name of a method here -> its name in the paper.
PRINTED = {"mean-field": "MFVI", "Radial": "Radial BNN"}


def show(outcome, arguments):
    """Learns tasks one after the other; draws and returns their accuracies.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Continual`.
    """
    session, data, heads = outcome.session, arguments.data, arguments.heads
    settings = continual_learning.SETTINGS[data]
    if session.scale == "smoke":
        settings = dataclasses.replace(
            settings, units=(8,), epochs=1, num_tasks=2
        )
    accuracies = {name: [] for name in continual_learning.METHODS}

    @functools.lru_cache(1)  # keeps the tasks of one seed
    def tasks_of(seed):
        return continual_learning.Tasks(
            data, heads, settings, session.data_dir, seed
        )

    for seed in range(session.seeds):
        for name, of_seeds in accuracies.items():
            own = settings
            if arguments.epochs_of and name in PRINTED:
                own = _with_printed_epochs(name, settings, outcome, arguments)
            known = {k: v for k, v in vars(own).items() if v is not None}
            # The name of a function, whose address differs between processes.
            known["rho"] = own.rho.__name__
            prior = sorted(continual_learning.PRIORS.get(name, {}))
            known = [known, seed, prior, *session.precision]
            words = "continual", data, heads, name, known
            path = session.folder / f"{digested(*words)}.json"
            learn = functools.partial(_learned, name, own, tasks_of, seed)
            of_seeds.append(kept(path, learn))
    accuracies = {name: np.array(a) for name, a in accuracies.items()}
    classes = range(0, 2 * settings.num_tasks, 2)
    names = [f"{first}/{first + 1}" for first in classes]
    figure = bdl.plots.task_accuracies(
        accuracies,
        tasks=names,
        chance=0.5 if heads == "multi" else 0.1,
        title=outcome.recipe.heading(),
    )
    file = outcome.save(figure, "tasks")
    lines = [("method", *(f"task {name}" for name in names), "mean")]
    for name, a in accuracies.items():
        last = a[:, -1]
        columns = [mean_and_error(values) for values in last.T]
        lines.append((name, *columns, mean_and_error(last.mean(-1))))
    return f"Accuracy of the last network\n\n{markdown(lines)}\n\n{file}"


def _learned(name, settings, tasks_of, seed):
    """Returns the accuracies of a method after each task."""
    print(f"  [seed {seed}] {name}", flush=True)
    with data_sets.missing_data_is_said():
        tasks = tasks_of(seed)
    bar = keras.utils.Progbar(
        len(tasks), stateful_metrics=["mean accuracy"], unit_name="task"
    )
    found = continual_learning.learn(name, tasks, settings, seed, bar)
    return found.tolist()


def _with_printed_epochs(name, settings, outcome, arguments):
    """Returns the settings, with the paper's number of epochs for a method."""
    paper, printed = outcome.recipe.paper, PRINTED[name]
    place = paper, arguments.epochs_of, arguments.network, printed
    epochs = published.settings(*place)["epochs"]
    return dataclasses.replace(settings, epochs=epochs)
