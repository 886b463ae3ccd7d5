"""Samplers, and optimizers that learn a Gaussian over the weights.

Both kinds of optimizers train the weights of an ordinary Keras model.
`keras_bdl.objectives` holds methods that work with any Keras optimizer.
"""

from keras_bdl.optimizers.atmc import ATMC
from keras_bdl.optimizers.ivon import IVON
from keras_bdl.optimizers.kfac import KFAC
from keras_bdl.optimizers.noisy_kfac import NoisyKFAC
from keras_bdl.optimizers.ogn import OGN
from keras_bdl.optimizers.sghmc import SGHMC
from keras_bdl.optimizers.sgld import SGLD
from keras_bdl.optimizers.sgnht import SGNHT
from keras_bdl.optimizers.vogn import VOGN

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
