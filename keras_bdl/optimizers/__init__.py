"""Samplers, and optimizers that learn a Gaussian over the weights.

Both kinds of optimizers train the weights of an ordinary Keras model.
`keras_bdl.objectives` holds methods that work with any Keras optimizer.
"""

from keras_bdl.optimizers._ivon import IVON
from keras_bdl.optimizers._momentum_samplers import ATMC
from keras_bdl.optimizers._momentum_samplers import SGHMC
from keras_bdl.optimizers._momentum_samplers import SGNHT
from keras_bdl.optimizers._noisy_kfac import KFAC
from keras_bdl.optimizers._noisy_kfac import NoisyKFAC
from keras_bdl.optimizers._sgld import SGLD
from keras_bdl.optimizers._vogn import OGN
from keras_bdl.optimizers._vogn import VOGN

__all__ = [
    "ATMC",
    "IVON",
    "KFAC",
    "OGN",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "VOGN",
    "NoisyKFAC",
]
