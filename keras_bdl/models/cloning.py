"""Lets `keras.models.clone_model` keep our classes.

Keras makes a plain `keras.Sequential` of every sequential model, and a plain
functional model of every functional model whose class has a constructor of
its own. These have no `compile(samples=...)`, and no Bayesian training step.
Both functions have no public name, so they are replaced in their module.
"""

import functools
import sys

import keras

from keras_bdl.models.bayesian_trainer import BayesianTrainer
from keras_bdl.models.model import Model
from keras_bdl.models.model import functional_twin
from keras_bdl.models.sequential import Sequential


def mend_clone_model():
    """Makes `clone_model` return models of our classes for models of them."""
    module = sys.modules[keras.models.clone_model.__module__]
    for name in ("_clone_sequential_model", "_clone_functional_model"):
        setattr(module, name, _mended(getattr(module, name)))


def _mended(clone):
    @functools.wraps(clone)
    def mended(model, *args, **kwargs):
        if not isinstance(model, BayesianTrainer):
            return clone(model, *args, **kwargs)
        copy = clone(_not_compiled(model), *args, **kwargs)
        if not isinstance(copy, BayesianTrainer):
            copy.__class__ = _class_of_copy(type(model))
        if model.compiled:
            copy.compile_from_config(model.get_compile_config())
        return copy

    return mended


def _not_compiled(model):
    """Returns the same model for reading, which Keras does not compile."""
    view = object.__new__(type(model))
    vars(view).update(vars(model), compiled=False)
    return view


def _class_of_copy(cls):
    if not issubclass(cls, keras.Sequential):
        return functional_twin(Model)
    # A constructor of its own may set what a copy would lack.
    return cls if cls.__init__ is Sequential.__init__ else Sequential
