"""Losses of a model and its weights, for `compile(objective=...)`.

Any optimizer of Keras minimises them. Methods that are optimizers themselves
are in `keras_bdl.optimizers`.
"""

from keras_bdl.objectives.hessian_diagonal import HessianDiagonal
from keras_bdl.objectives.hessian_diagonal import Hutchinson
from keras_bdl.objectives.hessian_diagonal import PerExampleFisher
from keras_bdl.objectives.hessian_diagonal import SquaredGradient
from keras_bdl.objectives.map import MAP
from keras_bdl.objectives.objective import Objective
from keras_bdl.objectives.sampled_vi import SampledVI
from keras_bdl.objectives.taylor_vi import TaylorVI

__all__ = [
    "MAP",
    "HessianDiagonal",
    "Hutchinson",
    "Objective",
    "PerExampleFisher",
    "SampledVI",
    "SquaredGradient",
    "TaylorVI",
]
