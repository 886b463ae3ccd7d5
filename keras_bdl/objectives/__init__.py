"""Objectives: losses of a model and its weights.

Pass one to `keras_bdl.Model.compile(objective=...)`; any optimizer of Keras
minimises it. `keras_bdl.optimizers` holds the methods that are optimizers
themselves.
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
