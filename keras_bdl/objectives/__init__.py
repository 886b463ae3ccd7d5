"""Objectives: losses of a model and its weights.

Pass one to `keras_bdl.Model.compile(objective=...)`; any optimizer of Keras
minimises it. `keras_bdl.optimizers` holds the methods that are optimizers
themselves.
"""

from keras_bdl.objectives._hessian_diagonal import Hutchinson
from keras_bdl.objectives._hessian_diagonal import PerExampleFisher
from keras_bdl.objectives._objective import MAP
from keras_bdl.objectives._sampled_vi import SampledVI
from keras_bdl.objectives._taylor_vi import TaylorVI

__all__ = ["MAP", "Hutchinson", "PerExampleFisher", "SampledVI", "TaylorVI"]
