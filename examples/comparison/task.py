"""The images of one comparison: for training, for tests, shifted, unknown."""

import dataclasses

import numpy as np

import keras_bdl as bdl

KINDS = ("rotation", "blur", "noise")
SEVERITIES = (1, 3, 5)


@dataclasses.dataclass(frozen=True)
class Task:
    """Images of known classes with labels, and images of unknown classes."""

    train: tuple
    validation: tuple
    test: tuple
    unknown: np.ndarray
    num_classes: int

    @property
    def input_shape(self):
        return self.train[0].shape[1:]

    def shifted(self, severity, seed):
        """Returns the test images under each kind of shift."""
        return {
            kind: bdl.datasets.corrupt(self.test[0], kind, severity, seed=seed)
            for kind in KINDS
        }


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the images come from, and how many of them are used."""

    name: str
    data_dir: str | None
    known: int  # the network learns the classes below this number
    train_size: int
    validation_size: int

    def images(self):
        """Returns `(x, y)` for training and for tests, of all classes."""
        data = bdl.datasets.load(
            self.name,
            classes="all",
            ood=(),
            augment=False,
            validation_size=0,
            data_dir=self.data_dir,
        )
        if isinstance(data.train, tuple):  # the test gets what training leaves
            pool = map(np.concatenate, zip(data.train, data.test, strict=True))
            return tuple(pool), None
        return tuple(map(_arrays, (data.train_eval, data.test)))

    def tasks(self, seeds):
        """Yields the task of each seed, with other images for training."""
        (x, y), test = self.images()
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(y))
            known = order[y[order] < self.known]
            stop = self.train_size + self.validation_size
            train, validation, rest = np.split(known, (self.train_size, stop))
            if test is None:
                left = np.concatenate([rest, order[y[order] >= self.known]])
                x_test, y_test = x[left], y[left]
            else:
                x_test, y_test = test
            of_known = y_test < self.known
            yield Task(
                train=(x[train], y[train]),
                validation=(x[validation], y[validation]),
                test=(x_test[of_known], y_test[of_known]),
                unknown=x_test[~of_known],
                num_classes=self.known,
            )


def _arrays(data):
    parts = zip(*data.as_numpy_iterator(), strict=True)
    return tuple(np.concatenate(part) for part in parts)
