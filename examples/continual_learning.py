"""Learns five tasks one after the other, without keeping their data.

    python examples/continual_learning.py [--smoke] [--heads both] [--seeds 3]
        [--data digits mnist fashion_mnist] [--paper] [--data-dir DIR]

A network learns to separate class 0 from class 1, then 2 from 3, and so on to
9: with one head for each task, and with one head for all ten classes. Before
each new task the posterior of mean-field and Radial layers becomes their prior.
The prior is all that the layers keep of earlier tasks. A plain network only
continues its training. Prints the accuracies, and draws the accuracy on each
task after the later tasks, as figure 5 of the Radial paper does.

The digits are part of scikit-learn. MNIST and Fashion-MNIST come from
TensorFlow Datasets, which downloads them into `--data-dir`. A data set that is
neither there nor can be downloaded is skipped. `--data fashion_mnist --paper`
is the experiment of the paper.
"""

import argparse
import dataclasses
import json
import math
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from radial_experiments.settings import RadialRho

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

# Each model traces its own steps. Hides the warning about many traces.
tf.get_logger().setLevel("ERROR")


def small_noise(kind):
    del kind
    return keras.initializers.Constant(math.log(math.expm1(0.1)))


def small_rho(kind):
    start = RadialRho if kind == "radial" else keras.initializers.Constant
    return start(-6.0)


@dataclasses.dataclass
class Settings:
    """Settings of the training on one data set."""

    units: tuple
    epochs: int
    batch_size: int
    learning_rate: float
    rho: object  # function from the kind of layers to an initializer
    prior_stddev: float
    validation_size: int
    num_tasks: int = 5
    decays: bool = True  # whether the learning rate of a task falls to zero
    train_size: int | None = None  # the most training images of a task

    def rate(self, steps):
        rate = self.learning_rate
        if self.decays:
            rate = keras.optimizers.schedules.CosineDecay(rate, steps)
        return rate


# Appendix D.2 of the paper; the number of epochs is that of Radial.
PAPER = Settings((200,) * 4, 20, 1024, 1e-3, small_rho, 1.0, 6000, decays=False)
SETTINGS = {
    "digits": Settings((100, 100), 50, 32, 0.01, small_noise, 0.3, 0),
    "fashion_mnist": PAPER,
    # The same network and number of steps, with a tenth of the images.
    "mnist": dataclasses.replace(
        PAPER, batch_size=120, validation_size=0, train_size=1_200
    ),
}
# A tenth of the images of MNIST and Fashion-MNIST. Weights start with standard
# deviations that let later tasks move them.
OWN = dataclasses.replace(
    SETTINGS["digits"],
    units=(100,),
    epochs=10,
    batch_size=60,
    train_size=1_200,
)
SAMPLES = 10  # in each prediction
# Kind of layers that replaces the dense layers, by method.
KINDS = {
    "mean-field": "mean_field",
    "Radial": "radial",
    "Radial, exact": "radial",
    "Radial as printed": "radial",
}
METHODS = ("fine-tuned", *KINDS)
# Arguments of `posterior_becomes_prior` that are not the defaults, by method.
# In the paper, the density of the Radial prior lacks its Jacobian. Without the
# Jacobian, the prior is a Gaussian, sqrt(D) times as wide as the posterior.
PRIORS = {
    "Radial, exact": {"density": "exact"},
    "Radial as printed": {
        "density": "exact",
        "transform": lambda q: bdl.distributions.MeanField(q.mean, q.stddev),
    },
}


class Tasks:
    """Pairs of classes, for training and for testing."""

    def __init__(self, name, heads, settings, data_dir=None, seed=0):
        self.multi = heads == "multi"
        self.names, self.train, self.test = [], [], []
        for first in range(0, 2 * settings.num_tasks, 2):
            data = bdl.datasets.load(
                name,
                classes=(first, first + 1),
                ood=(),
                augment=False,
                validation_size=settings.validation_size,
                seed=seed,
                data_dir=data_dir,
            )
            self.names.append(f"{first}/{first + 1}")
            offset = 0 if self.multi else first
            for part, kept, size in (
                (data.train_eval, self.train, settings.train_size),
                (data.test, self.test, None),
            ):
                x, y = (array[:size] for array in arrays(part))
                kept.append((x, y + offset))
        self.num_classes = 2 if self.multi else 10
        self.input_shape = data.input_shape

    def __len__(self):
        return len(self.names)


def arrays(part):
    if isinstance(part, tf.data.Dataset):
        x, y = zip(*part.as_numpy_iterator(), strict=True)
        part = np.concatenate(x), np.concatenate(y)
    return part


def networks(name, tasks, settings):
    """Returns one model per task: heads on one body, or the same model."""
    model = bdl.applications.MultiHeadMLP(
        tasks.input_shape,
        heads=len(tasks) if tasks.multi else 1,
        classes=tasks.num_classes,
        units=settings.units,
    )
    if name in KINDS:
        model = bdl.convert(
            model,
            KINDS[name],
            prior=bdl.priors.Normal(settings.prior_stddev),
            rho_initializer=settings.rho(KINDS[name]),
        )
    models = [bdl.Model(model.input, head) for head in model.outputs]
    return models if tasks.multi else models * len(tasks)


def learn(name, tasks, settings, seed, bar):
    """Returns the accuracy on task k after task t, for all k up to t."""
    keras.utils.set_random_seed(seed)
    models = networks(name, tasks, settings)
    accuracies = np.full((len(tasks), len(tasks)), np.nan)
    for t, (model, (x, y)) in enumerate(zip(models, tasks.train, strict=True)):
        batch_size = min(settings.batch_size, len(x))
        if tasks.multi or t == 0 or name not in KINDS:
            rate = settings.rate(settings.epochs * (len(x) // batch_size))
            model.compile(
                keras.optimizers.Adam(rate, amsgrad=True),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            )
        data = tf.data.Dataset.from_tensor_slices((x, y))
        data = data.shuffle(len(x), seed=seed)
        model.fit(
            data.batch(batch_size, drop_remainder=True),
            epochs=settings.epochs,
            shuffle=False,  # the data are shuffled already
            verbose=0,
        )
        if name in KINDS:
            bdl.continual.posterior_becomes_prior(model, **PRIORS.get(name, {}))
        for k in range(t + 1):
            samples = SAMPLES if name in KINDS else None
            accuracies[t, k] = accuracy(models[k], *tasks.test[k], samples)
        bar.add(1, [("mean accuracy", np.nanmean(accuracies[t]))])
    return accuracies


def accuracy(model, x, y, samples):
    prediction = bdl.predict(
        model, x, samples=samples, batch_size=1024, verbose=0
    )
    return np.mean(prediction.mean.argmax(-1) == y)


def table(accuracies, names):
    """Mean accuracy over the tasks so far, with standard errors."""
    head = "".join(f"after {name}".rjust(20) for name in names)
    lines = ["".ljust(18) + head]
    for method, a in accuracies.items():
        so_far = np.array(
            [a[:, t, : t + 1].mean(-1) for t in range(len(names))]
        )
        cells = [mean_and_error(values).rjust(20) for values in so_far]
        lines.append(method.ljust(18) + "".join(cells))
    return "\n".join(lines)


def mean_and_error(values):
    text = f"{np.mean(values):.3f}"
    if len(values) > 1:
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        text += f" ± {error:.3f}"
    return text


def compare(data, heads, args, settings):
    """Returns the names of the tasks, and the accuracies of each method."""
    accuracies = {name: [] for name in METHODS}
    for seed in range(args.seeds):
        # Every seed has its own split of the digits.
        tasks = Tasks(data, heads, settings, args.data_dir, seed)
        for name in METHODS:
            print(f"[{data}, {heads} head, seed {seed}] {name}", flush=True)
            bar = keras.utils.Progbar(
                len(tasks),
                stateful_metrics=["mean accuracy"],
                unit_name="task",
            )
            one = learn(name, tasks, settings, seed, bar)
            accuracies[name].append(one)
    return tasks.names, {n: np.array(a) for n, a in accuracies.items()}


def can_load(data, data_dir):
    """Returns whether the data are here, or prints why they are skipped."""
    try:
        bdl.datasets.load(data, ood=(), data_dir=data_dir)
    except (ConnectionError, ImportError) as error:
        print(f"Skipped {data}. {error}", flush=True)
        return False
    return True


def run(data, args):
    """Learns the tasks of one data set, and writes the table and pictures."""
    settings = SETTINGS[data] if args.paper or data == "digits" else OWN
    if args.smoke:
        settings = dataclasses.replace(
            settings, units=(8,), epochs=1, num_tasks=2
        )
    kinds = ["multi", "single"] if args.heads == "both" else [args.heads]
    out = args.out / data
    out.mkdir(parents=True, exist_ok=True)
    texts, numbers, start = [], {}, time.perf_counter()
    for heads in kinds:
        names, accuracies = compare(data, heads, args, settings)
        numbers[heads] = {
            name: [
                [row[: t + 1] for t, row in enumerate(one)]
                for one in a.tolist()
            ]
            for name, a in accuracies.items()
        }
        text = table(accuracies, names)
        texts.append(
            f"{data}, {heads} head: mean accuracy over the tasks so far"
            f"\n\n{text}"
        )
        figure = bdl.plots.task_accuracies(
            accuracies,
            tasks=[f"classes {name}" for name in names],
            chance=0.5 if heads == "multi" else 0.1,
            title=f"{data}, {heads} head",
        )
        with (out / f"{heads}_head.png").replaced() as file:
            figure.savefig(file, dpi=150)
    text = "\n\n".join(texts)
    (out / "table.txt").write_text(text + "\n")
    (out / "accuracies.json").write_text(json.dumps(numbers, indent=1))
    print(f"\n{text}\n")
    print(
        f"Means over {args.seeds} seeds, with standard errors, in "
        f"{time.perf_counter() - start:.0f} seconds."
    )
    print(f"Table and pictures: {out.absolute()}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument(
        "--data", choices=SETTINGS, nargs="+", default=["digits"]
    )
    parser.add_argument("--data-dir", help="of TensorFlow Datasets")
    parser.add_argument(
        "--paper",
        action="store_true",
        help="network and training of the Radial paper, for (Fashion-)MNIST",
    )
    parser.add_argument(
        "--heads", choices=["multi", "single", "both"], default="both"
    )
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--out", type=StoragePath, default="results/continual")
    args = parser.parse_args()

    if args.paper and "digits" in args.data:
        parser.error("--paper has no settings for the digits")
    loaded = [data for data in args.data if can_load(data, args.data_dir)]
    if not loaded:
        raise SystemExit("None of the data sets can be loaded.")
    for data in loaded:
        run(data, args)


if __name__ == "__main__":
    main()
