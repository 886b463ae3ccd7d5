"""Fine-tunes a transformer with adapters (LoRA) and a posterior over them.

    python examples/fine_tuning.py [--seeds 3] [--smoke]
        [--out results/fine_tuning]
    python examples/fine_tuning.py --preset vit_base_patch16_224_imagenet
        --data beans --data-dir DIR

Without `--preset`, the script makes its own pretrained network: a small vision
transformer of KerasHub learns the digits 0 to 7 of scikit-learn, turned and
moved. Its backbone is then frozen. Adapters of rank 4 and a new head learn to
tell the digits 8 and 9 apart from 40 images. Every method predicts all other
images of 8 and 9, and images of the digits 0 to 7, which it should doubt.

Prints accuracy, negative log-likelihood (NLL), calibration error (ECE), the
probability that a digit from 0 to 7 has a higher entropy than an 8 or 9
(AUROC), seconds of training and the size of the posterior file. Writes the
table to a folder. Needs the extra `hub`.
"""

import argparse
import dataclasses
import functools
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_hub
import numpy as np

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

RANK, SAMPLES, BATCH = 4, 30, 16
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# Names of columns, and their decimals.
COLUMNS = {
    "accuracy": 3,
    "nll": 3,
    "ece": 3,
    "unknown": 3,
    "seconds": 0,
    "MiB": 2,
}


@dataclasses.dataclass
class Task:
    """Images for fine-tuning, and images of other classes."""

    train: tuple
    test: tuple
    unknown: Any
    num_classes: int


def digits(seed):
    """Returns images of the digits 0 to 7 for pretraining, and the task."""
    old = bdl.datasets.load("digits", classes=range(8), seed=seed)
    new = bdl.datasets.load("digits", classes=(8, 9), seed=seed)
    x, y = map(np.concatenate, zip(new.train, new.test, strict=True))
    order = np.random.default_rng(seed).permutation(len(x))
    few, rest = order[:40], order[40:]
    task = Task((x[few], y[few]), (x[rest], y[rest]), old.test[0], 2)
    return old.train, task


def of_loader(args, seed):
    """Returns the task of a data set of TensorFlow Datasets."""
    data = bdl.datasets.load(
        args.data, data_dir=args.data_dir, augment=False, seed=seed
    )
    parts = []
    for part in (data.train, data.test):
        batches = zip(*part.as_numpy_iterator(), strict=True)
        parts.append(tuple(map(np.concatenate, batches)))
    (unknown,) = data.ood.values()
    return Task(*parts, unknown, data.num_classes)


def small_vit(image_shape, size, dropout=0.0):
    """Returns a vision transformer with random weights."""
    return keras_hub.models.ViTBackbone(
        image_shape=image_shape,
        patch_size=(2, 2),
        num_layers=1 if size < 16 else 4,
        num_heads=4,
        hidden_dim=size,
        mlp_dim=2 * size,
        dropout_rate=dropout,
    )


def classifier(backbone, num_classes):
    task = keras_hub.models.ViTImageClassifier(
        backbone=backbone, num_classes=num_classes, preprocessor=None
    )
    return bdl.Model(task.inputs, task.outputs)


def pretrain(train, size, epochs, seed):
    """Returns the weights of a backbone that knows the digits 0 to 7."""
    keras.utils.set_random_seed(seed)
    x, y = train
    backbone = small_vit(x.shape[1:], size)
    model = classifier(backbone, 8)
    model.compile(keras.optimizers.AdamW(1e-3), LOSS)
    for epoch in range(epochs):
        turned = bdl.datasets.corrupt(
            bdl.datasets.corrupt(x, "rotation", 1 + epoch % 2, seed=epoch),
            "translation",
            1,
            seed=epoch,
        )
        model.fit(turned, y, batch_size=64, verbose=0)
    return backbone.get_weights()


@dataclasses.dataclass
class FineTuning:
    """One fine-tuning run; methods call `fit`."""

    make_backbone: Any
    task: Task
    epochs: int
    seed: int

    def model(self, dropout=0.0):
        """Returns a frozen backbone with adapters and a new head."""
        keras.utils.set_random_seed(self.seed)
        backbone = self.make_backbone(dropout)
        model = classifier(backbone, self.task.num_classes)
        backbone.enable_lora(RANK)
        return model

    def fit(self, optimizer, callbacks=(), dropout=0.0):
        model = self.model(dropout)
        model.compile(optimizer, LOSS)
        model.fit(
            *self.task.train,
            batch_size=BATCH,
            epochs=self.epochs,
            callbacks=list(callbacks),
            verbose=0,
        )
        return model

    def cosine(self, rate):
        steps = self.epochs * -(-len(self.task.train[0]) // BATCH)
        return keras.optimizers.schedules.CosineDecay(rate, steps)


def plain(run):
    return run.fit(keras.optimizers.Adam(run.cosine(3e-3))), None


def laplace(run, **options):
    model, _ = plain(run)
    return model, bdl.fit_laplace(model, run.task.train, verbose=0, **options)


def natural_gradient(run, optimizer, rate):
    model = run.fit(optimizer(run.cosine(rate)))
    return model, bdl.posterior_of(model)


def swag(run):
    callback = bdl.SWAG(start_epoch=run.epochs // 2, rank=10)
    model = run.fit(keras.optimizers.Adam(1e-3), [callback])
    return model, callback.posterior


def dropout(run):
    optimizer = keras.optimizers.Adam(run.cosine(3e-3))
    return run.fit(optimizer, dropout=0.1), bdl.posteriors.MCDropout()


METHODS = {
    "plain": plain,
    "Laplace, adapters": functools.partial(laplace, subset="all"),
    "Laplace, last layer": laplace,
    "IVON": functools.partial(natural_gradient, optimizer=bdl.IVON, rate=0.05),
    "VOGN": functools.partial(natural_gradient, optimizer=bdl.VOGN, rate=0.05),
    "SWAG": swag,
    "MC dropout": dropout,
}


def size_of_file(posterior):
    """Returns the size of the file of a posterior, in MiB."""
    if posterior is None:
        return 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "posterior.bdl")
        posterior.save(path)
        return path.stat().st_size / 2**20


def scores(run, method):
    start = time.perf_counter()
    model, posterior = METHODS[method](run)
    seconds = time.perf_counter() - start
    predict = functools.partial(
        bdl.predict,
        model,
        posterior=posterior,
        samples=None if posterior is None else SAMPLES,
        verbose=0,
    )
    x, y = run.task.test
    report = bdl.evaluate(predict(x), y, ood=predict(run.task.unknown))
    return {
        "accuracy": report.accuracy,
        "nll": report.nll,
        "ece": report.ece,
        "unknown": report.ood["ood"]["entropy"]["auroc"],
        "seconds": seconds,
        "MiB": size_of_file(posterior),
    }


def table(found):
    """Returns the means over seeds, with standard errors."""
    lines = ["method".ljust(20) + "".join(n.rjust(15) for n in COLUMNS)]
    for method, runs in found.items():
        line = method.ljust(20)
        for name, decimals in COLUMNS.items():
            values = np.array([run[name] for run in runs])
            cell = f"{values.mean():.{decimals}f}"
            if len(values) > 1 and name not in ("seconds", "MiB"):
                error = values.std(ddof=1) / len(values) ** 0.5
                cell += f" ± {error:.{decimals}f}"
            line += cell.rjust(15)
        lines.append(line)
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--preset", help="a ViT of KerasHub, such as vit_base_...")
    add("--data", default="digits", help="a name in keras_bdl.datasets.SPECS")
    add("--data-dir", help="folder of TensorFlow Datasets")
    add("--epochs", type=int, default=100)
    add("--seeds", type=int, default=3, help="number of repetitions")
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--smoke", action="store_true", help="seconds only")
    add("--out", type=StoragePath, default="results/fine_tuning")
    args = parser.parse_args()
    if (args.preset is None) != (args.data == "digits"):
        parser.error(
            "`--preset` needs `--data`, and other data than the digits need "
            "a `--preset`"
        )
    return args


def main():
    args = arguments()
    epochs = 6 if args.smoke else args.epochs
    found = {method: [] for method in args.methods}
    for seed in range(1 if args.smoke else args.seeds):
        if args.preset is None:
            size = 8 if args.smoke else 32
            train, task = digits(seed)
            weights = pretrain(train, size, 1 if args.smoke else 60, seed)

            def make_backbone(rate, weights=weights, size=size, x=train[0]):
                backbone = small_vit(x.shape[1:], size, rate)
                backbone.set_weights(weights)
                return backbone

        else:
            task = of_loader(args, seed)

            def make_backbone(rate):
                return keras_hub.models.ViTBackbone.from_preset(
                    args.preset, dropout_rate=rate
                )

        run = FineTuning(make_backbone, task, epochs, seed)
        for number, method in enumerate(found, 1):
            print(f"[{number}/{len(found)}] {method}, seed {seed}")
            found[method].append(scores(run, method))
        keras.utils.clear_session()
    text = table(found)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "table.txt").write_text(text + "\n")
    print(f"\n{text}\nTable: {args.out.absolute()}")


if __name__ == "__main__":
    main()
