"""The data of the regressions: splits of tables, and a wave."""

import dataclasses

import numpy as np
import sklearn.datasets


@dataclasses.dataclass
class Split:
    """One split of the data, and the numbers that standardise it."""

    seed: int
    train: tuple
    test: tuple = ()
    stretch: float = 1.0  # of the inputs

    def __post_init__(self):
        self.size = len(self.train[0])
        x, y = self.train
        self.x_mean, self.x_stddev = x.mean(0), x.std(0)
        self.y_mean, self.y_stddev = y.mean(), y.std()

    def inputs(self, x):
        x = self.stretch * (x - self.x_mean) / self.x_stddev
        return x.astype("float32")

    @property
    def standard(self):
        y = (self.train[1] - self.y_mean) / self.y_stddev
        return self.inputs(self.train[0]), y.astype("float32")[:, None]


def wave(x):
    """The truth of the data with one input: mean and standard deviation."""
    return np.sin(2 * x) + x / 3, 0.05 + 0.25 / (1 + np.exp(-2 * x))


def noisy_wave(rng, *ranges):
    x = np.concatenate([rng.uniform(*r) for r in ranges])
    mean, stddev = wave(x)
    return x[:, None], mean + stddev * rng.standard_normal(len(x))


def diabetes(seed):
    x, y = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [4 * len(y) // 5])
    return Split(seed, (x[train], y[train]), (x[test], y[test]))


def friedman1(seed):
    x, y = sklearn.datasets.make_friedman1(1000, noise=1.0, random_state=seed)
    return Split(seed, (x[:350], y[:350]), (x[350:], y[350:]))


DATA = {"diabetes": diabetes, "friedman1": friedman1}
