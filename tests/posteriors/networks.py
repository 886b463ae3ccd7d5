"""Small networks for the tests of posteriors."""

import keras
import numpy as np

from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import LowRankGaussian


def network(units=3, **kwargs):
    return keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(units, **kwargs),
            keras.layers.BatchNormalization(**kwargs),
            keras.layers.Dropout(0.5, **kwargs),
            keras.layers.Dense(1, **kwargs),
        ]
    )


def values(variables):
    return [keras.ops.convert_to_numpy(v).copy() for v in variables]


def arrays_like(variables, seed=0, leading=()):
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal((*leading, *v.shape)).astype("float32")
        for v in variables
    ]


def gaussian(model, seed=0):
    variables = model.trainable_variables
    return Gaussian(
        arrays_like(variables, seed),
        [np.square(a) for a in arrays_like(variables, seed + 1)],
        names=[v.name for v in variables],
    )


def low_rank(model, rank=3, seed=0, **kwargs):
    variables = model.trainable_variables
    diagonal = gaussian(model, seed)
    return LowRankGaussian(
        diagonal.mean(),
        [np.square(a) for a in arrays_like(variables, seed + 1)],
        arrays_like(variables, seed + 2, (rank,)),
        names=[v.name for v in variables],
        **kwargs,
    )
