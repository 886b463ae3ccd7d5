"""Replacements that let `keras.models.clone_model` keep our classes.

Keras makes a plain `keras.Sequential` of every sequential model. Keras makes a
plain functional model of every functional model whose class has a constructor
of its own. Plain models have no `compile(samples=...)` and no Bayesian training
step. `clone_model` has no hook for the class of the copy, and users call
`clone_model` of Keras. So importing `keras_bdl` replaces the two private
functions that choose the class. For models of other classes, the replacements
call the functions of Keras.
"""

import keras

from keras_bdl import _keras
from keras_bdl.models._bayesian_trainer import BayesianTrainer
from keras_bdl.models._model import Model
from keras_bdl.models._model import functional_twin
from keras_bdl.models._sequential import Sequential


def mend_clone_model() -> None:
    """Makes `keras.models.clone_model` keep the classes of this library."""
    _keras.wrap_clone_functions(_mended)


def _mended(clone):
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
    """Returns a shallow copy of a model, marked as not compiled."""
    view = object.__new__(type(model))
    vars(view).update(vars(model), compiled=False)
    return view


def _class_of_copy(cls):
    if not issubclass(cls, keras.Sequential):
        return functional_twin(Model)
    # A constructor of the class may set attributes that the copy would lack.
    return cls if cls.__init__ is Sequential.__init__ else Sequential
