"""Trains a network on a TPU, or on anything else, with one command.

    python tpu/train.py --setting atmc-imagenet --strategy tpu
        --steps-per-execution 100 --data-dir gs://my-bucket/tensorflow_datasets
        --directory /mnt/disks/persist/atmc [--smoke]

`--setting` takes all numbers from a paper: ATMC on ImageNet or on CIFAR-10. All
other flags override the setting. A killed run continues after its last whole
epoch: start the same command again. `--smoke` trains a small network on digits
for a few seconds. The script ends with a report on the test data. `--directory`
then holds `latest.bdl`, the checkpoint; `samples/`, the samples of a chain;
`posterior.bdl`, for `keras_bdl.posteriors.load`; and `report.json`.
"""

import argparse
import json
import os
import sys

import environment
import paper_settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
environment.prepare(sys.argv[1:])

import keras
from cases import METHODS

import keras_bdl as bdl
from keras_bdl import _keras
from keras_bdl._models._strategy_check import check_strategy
from keras_bdl.extend import StoragePath

SAMPLERS = ("atmc", "sgnht", "sghmc", "sgld")


class Data:
    """The data of a run, all training batches of one size as a TPU needs them.

    Args:
        args: The arguments of the command line.
        strategy: The strategy.
    """

    def __init__(self, args, strategy):
        options = {"data_dir": args.data_dir, "seed": args.seed}
        if args.data == "digits":
            options["classes"] = range(10)
        else:
            options |= {"batch_size": args.batch, "drop_remainder": True}
        self.splits = bdl.datasets.load(
            args.data, augment=args.augment, **options
        )
        self.batch = args.batch
        self.strategy = strategy
        self.is_array = isinstance(self.splits.train, tuple)
        self.hosts = environment.num_hosts(strategy)

    @property
    def steps(self):
        """Steps of an epoch."""
        return self.splits.train_size // self.batch

    @property
    def train_size(self):
        """N; each epoch of shuffled data leaves out other examples."""
        used = self.steps * self.batch
        return used if self.is_array else self.splits.train_size

    def fit_arguments(self):
        """Arguments of `fit` for the training data."""
        if not self.is_array:
            train = self.splits.train
            if self.hosts > 1:
                train = on_hosts(self.splits, self.strategy, self.steps)
            return {"x": train, "shuffle": False}
        x, y = (array[: self.train_size] for array in self.splits.train)
        return {"x": x, "y": y, "batch_size": self.batch}

    def callbacks(self):
        return [] if self.splits.epochs is None else [self.splits.epochs]

    def test(self):
        """Inputs, labels if they are separate, and the batch size if needed."""
        if not self.is_array:
            return self.splits.test, None, None
        return *self.splits.test, self.batch

    def for_batch_norm(self, model):
        """Training inputs for the statistics of BatchNorm, if any."""
        norm = keras.layers.BatchNormalization
        if not any(isinstance(x, norm) for x in _keras.all_layers(model)):
            return None
        data = self.splits.train_eval
        return data[0] if self.is_array else data


def on_hosts(splits, strategy, steps):
    """Returns the training data, decoded in parts by all hosts.

    Args:
        splits: What `keras_bdl.datasets.load` returns.
        strategy: The strategy.
        steps: Number of steps in an epoch.
    """
    data = strategy.distribute_datasets_from_function(splits.train_on_host)
    # TensorFlow counts the batches of the replicas of a host, and Keras would
    # take this number for the steps of an epoch.
    kind = type(data)
    data.__class__ = type(kind.__name__, (kind,), {"cardinality": steps})
    return data


def make_model(args, data, cycle):
    """Returns the compiled model, made under the strategy."""
    options = dict(args.options)
    method = "sgd" if args.method == "swag" else args.method
    rate = cycle or args.learning_rate
    if rate is not None:
        options["learning_rate"] = rate
    network = getattr(bdl.applications, args.network)(
        input_shape=data.splits.input_shape,
        classes=data.splits.num_classes,
        **args.network_options,
    )
    compiled = METHODS[method].compiled
    model = compiled(network, data.train_size, **options)
    # The same arguments, except for how a step runs.
    model.steps_per_execution = args.steps_per_execution
    check_strategy(model, model.objective, model.sample_replicas)
    return model


def make_cycle(args, data):
    """Returns the schedule that ends with a sample, or `None`."""
    if args.method not in SAMPLERS:
        return None
    return bdl.schedules.CyclicalCosine(
        args.learning_rate or 1e-3, args.cycle * data.steps
    )


def make_collector(args, cycle):
    """Returns the callback that holds the posterior, or `None`."""
    if args.method == "swag":
        return bdl.SWAG(start_epoch=args.burn_in)
    if args.method in SAMPLERS:
        return bdl.callbacks.SampleCollector(
            every=cycle,
            start_epoch=args.burn_in,
            directory=StoragePath(args.directory) / "samples",
        )
    return None


def train(args):
    """Trains or continues; returns model, data and posterior."""
    # Before anything is computed: several machines need this order.
    strategy = bdl.distribute.strategy(args.strategy)
    keras.utils.set_random_seed(args.seed)
    if args.bfloat16:
        keras.config.set_dtype_policy("mixed_bfloat16")
    data = Data(args, strategy)
    environment.check_run(
        batch=args.batch,
        replicas=strategy.num_replicas_in_sync,
        hosts=data.hosts,
        reads_files=not data.is_array,
        data_dir=args.data_dir,
    )
    if not data.steps:
        raise SystemExit(
            "`--batch` must be at most the number of training examples, "
            f"{data.splits.train_size}. Received: --batch {args.batch}"
        )
    cycle = make_cycle(args, data)
    with strategy.scope():
        model = make_model(args, data, cycle)
    collector = make_collector(args, cycle)
    print(
        f"{args.method}, {model.name} on {args.data}: "
        f"{strategy.num_replicas_in_sync} replicas on {data.hosts} hosts, "
        f"{data.steps} steps an epoch, {args.epochs} epochs, in "
        f"{args.directory}",
        flush=True,
    )
    callbacks = [] if collector is None else [collector]
    # Last: it saves the state of all others.
    checkpoint = bdl.callbacks.Checkpoint(args.directory)
    model.fit(
        **data.fit_arguments(),
        epochs=args.epochs,
        callbacks=[*callbacks, *data.callbacks(), checkpoint],
        verbose=2,
    )
    return model, data, collector and collector.posterior


def evaluate(args, model, data, posterior):
    """Prints and writes how good the posterior is on the test data."""
    x, y, batch_size = data.test()
    # Samples of a chain bring their own statistics.
    swag = args.method == "swag"
    prediction = bdl.predict(
        model,
        x,
        posterior=posterior,
        samples=args.samples,
        batch_size=batch_size,
        batch_norm_data=data.for_batch_norm(model) if swag else None,
        verbose=0,
    )
    report = bdl.evaluate(prediction, y)
    print(report)
    return {name: float(report[name]) for name in ("accuracy", "nll", "ece")}


def make_parser():
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--setting",
        choices=paper_settings.SETTINGS,
        help="all numbers of a paper",
    )
    parser.add_argument(
        "--strategy", default="auto", help="see keras_bdl.distribute.strategy"
    )
    parser.add_argument(
        "--method", default="atmc", choices=[*METHODS, "swag"], metavar="NAME"
    )
    parser.add_argument(
        "--options", type=json.loads, default={}, help="of the method, JSON"
    )
    parser.add_argument(
        "--network", default="ResNetPlusPlus50", help="a keras_bdl.application"
    )
    parser.add_argument(
        "--network-options", type=json.loads, default={}, help="JSON"
    )
    parser.add_argument("--data", default="imagenet2012")
    parser.add_argument("--data-dir", help="of TensorFlow Datasets; gs://...")
    parser.add_argument(
        "--augment",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the training images",
    )
    parser.add_argument("--batch", type=int, default=1024, help="of all chips")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument(
        "--burn-in", type=int, default=50, help="epochs before collecting"
    )
    parser.add_argument("--cycle", type=int, default=10, help="epochs a sample")
    parser.add_argument("--samples", type=int, help="draws of a prediction")
    parser.add_argument("--steps-per-execution", type=int, default=1)
    parser.add_argument(
        "--bfloat16", action=argparse.BooleanOptionalAction, default=False
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--directory", default="results/train", help="local, or gs://..."
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    return parser


# A setting has options of its own method and of its own network.
OPTIONS_OF = {"options": "method", "network_options": "network"}


def parse(words):
    """Returns the arguments of a command line, with those of its setting.

    Args:
        words: The command line without the name of the script.
    """
    parser = make_parser()
    args = parser.parse_args(words)
    flags = {}
    if args.setting:
        flags = paper_settings.flags(args.setting)
        plain = {k: v for k, v in flags.items() if k not in OPTIONS_OF}
        parser.set_defaults(**plain)
        args = parser.parse_args(words)
    for options, owner in OPTIONS_OF.items():
        if getattr(args, owner) == flags.get(owner):
            setattr(args, options, flags[options] | getattr(args, options))
    if args.smoke:
        args.data, args.batch, args.samples = "digits", 100, 3
        sampled = args.method in SAMPLERS
        args.network = "ResNetPlusPlus" if sampled else "ResNet"
        small = {"depth": 8, "filters": 4}
        args.network_options = {**args.network_options, **small}
        args.epochs, args.burn_in, args.cycle = 4, 1, 1
    return args


def main():
    """Trains, evaluates and writes the files."""
    args = parse(sys.argv[1:])
    model, data, posterior = train(args)
    report = evaluate(args, model, data, posterior)
    if bdl.distribute.is_chief(model.distribute_strategy):
        directory = StoragePath(args.directory)
        if posterior is not None:
            posterior.save(directory / "posterior.bdl")
        (directory / "report.json").write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
