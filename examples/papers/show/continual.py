"""Tasks that are learned one after the other."""

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

# What the paper calls these layers.
PRINTED = {"mean-field": "MFVI", "Radial": "Radial BNN"}


def show(recipe, session, seeds, folder):
    """Learns the tasks; draws what is left of each, and returns a table.

    Args:
        recipe: The `Recipe`, with `heads` and `data`.
        session: The `Session`.
        seeds: Number of seeds.
        folder: Where the figure is written.
    """
    heads, data = recipe.arguments["heads"], recipe.arguments["data"]
    settings = continual_learning.SETTINGS[data]
    if session.scale == "smoke":
        settings = dataclasses.replace(
            settings, units=(8,), epochs=1, num_tasks=2
        )
    accuracies = {name: [] for name in continual_learning.METHODS}

    @functools.lru_cache(1)  # one seed comes after the other
    def tasks_of(seed):
        return continual_learning.Tasks(
            data, heads, settings, session.data_dir, seed
        )

    for seed in range(seeds):
        for name, of_seeds in accuracies.items():
            own = _of_method(name, settings, session.scale)
            # A function has another address in every process.
            known = vars(own) | {"rho": own.rho.__name__}
            known = [known, seed, *session.precision]
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
        title=recipe.heading(),
    )
    path = folder / "tasks.png"
    figure.savefig(path, dpi=150)
    lines = [("method", *(f"task {name}" for name in names), "mean")]
    for name, a in accuracies.items():
        last = a[:, -1]
        columns = [mean_and_error(values) for values in last.T]
        lines.append((name, *columns, mean_and_error(last.mean(-1))))
    return f"Accuracy of the last network\n\n{markdown(lines)}\n\n{path.name}"


def _learned(name, settings, tasks_of, seed):
    """Accuracies after each task, of a method that learns all of them."""
    print(f"  [seed {seed}] {name}", flush=True)
    with data_sets.missing_data_is_said():
        tasks = tasks_of(seed)
    bar = keras.utils.Progbar(
        len(tasks), stateful_metrics=["mean accuracy"], unit_name="task"
    )
    found = continual_learning.learn(name, tasks, settings, seed, bar)
    return found.tolist()


def _of_method(name, settings, scale):
    """The paper trains mean-field layers longer."""
    if scale != "paper" or name not in PRINTED:
        return settings
    place = "radial", "fashion_mnist", "MLP 4 x 200", PRINTED[name]
    epochs = published.settings(*place)["epochs"]
    return dataclasses.replace(settings, epochs=epochs)
