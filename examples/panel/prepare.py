"""Turns files of the panel's data into folders that the loaders read.

    python examples/panel/prepare.py --idx DIR --name fashion_mnist
        --data-dir ~/tensorflow_datasets
    python examples/panel/prepare.py --tables DIR --data-dir ...

`--idx` names a folder with the four files of MNIST or Fashion-MNIST,
`train-images-idx3-ubyte.gz` and so on, as the Debian package
`dataset-fashion-mnist` installs them. `--digits` names a file of arrays `x` and
`y`. `--tables` names a folder of files of the UCI regressions: `x`, `y`, and
the rows of training of each split, packed to bits, in `train`.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

TEST_DIGITS = 0.1875  # of a file of digits: 1,500 of 8,000


class _Arrays(tfds.core.GeneratorBasedBuilder):
    """A data set whose rows are in memory."""

    VERSION = tfds.core.Version("3.0.1")
    pkg_dir_path = Path(".")  # has no metadata of its own
    parts: dict
    features: tfds.features.FeaturesDict

    def _info(self):
        keys = ("image", "label") if "image" in self.features else None
        return tfds.core.DatasetInfo(
            builder=self, features=self.features, supervised_keys=keys
        )

    def _split_generators(self, dl_manager):
        del dl_manager
        return {
            name: self._generate_examples(rows)
            for name, rows in self.parts.items()
        }

    def _generate_examples(self, rows):
        for i in range(len(next(iter(rows.values())))):
            yield i, {key: values[i] for key, values in rows.items()}


def prepare(name, features, parts, data_dir):
    """Writes the rows of each part as the data set `name`."""
    members = {
        "name": name,
        "features": tfds.features.FeaturesDict(features),
        "parts": parts,
    }
    # The catalogue may know a data set of this name.
    kind = type(_Arrays)(name, (_Arrays,), members, skip_registration=True)
    builder = kind(data_dir=data_dir)
    builder.download_and_prepare()
    print(f"{name}: {builder.data_path}")


IMAGES = {
    "image": tfds.features.Image(shape=(28, 28, 1)),
    "label": tfds.features.ClassLabel(num_classes=10),
}


def idx_files(folder, name, data_dir):
    """Prepares images from the four files of MNIST's format."""

    def read(pattern, offset, shape):
        file = next(Path(folder).rglob(pattern))
        data = np.frombuffer(gzip.open(file).read(), "uint8", offset=offset)
        return data.reshape(shape)

    parts = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        parts[part] = {
            "image": read(f"{prefix}-images*.gz", 16, (-1, 28, 28, 1)),
            "label": read(f"{prefix}-labels*.gz", 8, -1).astype("int64"),
        }
    prepare(name, IMAGES, parts, data_dir)


def digits(file, data_dir):
    """Prepares MNIST from a file of arrays `x` and `y`."""
    arrays = np.load(file)
    x, y = arrays["x"].reshape(-1, 28, 28, 1), arrays["y"].astype("int64")
    stop = round((1.0 - TEST_DIGITS) * len(y))
    parts = {
        "train": {"image": x[:stop], "label": y[:stop]},
        "test": {"image": x[stop:], "label": y[stop:]},
    }
    prepare("mnist", IMAGES, parts, data_dir)


def tables(folder, data_dir):
    """Prepares every table of a folder, as `uci_` and its name."""
    for file in sorted(Path(folder).glob("*.npz")):
        arrays = np.load(file)
        x, y = arrays["x"], arrays["y"]
        train = np.unpackbits(arrays["train"], axis=1)[:, : len(y)]
        rows = {"x": x.astype("float64"), "y": y, "train": train.T > 0}
        scalar = tfds.features.Scalar(np.float64)
        features = {
            "x": tfds.features.Tensor(shape=x.shape[1:], dtype=np.float64),
            "y": scalar,
            "train": tfds.features.Tensor(shape=(len(train),), dtype=np.bool_),
        }
        stem = file.stem.replace("-", "_")
        prepare(f"uci_{stem.lower()}", features, {"train": rows}, data_dir)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--idx", help="folder of files of MNIST's format")
    add("--name", default="fashion_mnist", help="of the data set of --idx")
    add("--digits", help="file with images x and labels y, as MNIST")
    add("--tables", help="folder of tables")
    add("--data-dir", required=True, help="folder of TensorFlow Datasets")
    args = parser.parse_args()
    if args.idx:
        idx_files(args.idx, args.name, args.data_dir)
    if args.digits:
        digits(args.digits, args.data_dir)
    if args.tables:
        tables(args.tables, args.data_dir)


if __name__ == "__main__":
    main()
