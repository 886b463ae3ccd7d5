"""A Keras model that Bayesian methods can train.

Keras turns a subclass of `keras.Model` into a functional model when the class
is called with inputs and outputs: Keras rewrites the bases of the class *and of
all its parents*. After the first `keras_bdl.Model(inputs, outputs)` every
subclass with its own `call` would be functional too, and fail. So this file
makes a twin: a class derived from both, which leaves its parents as they are.
"""

import functools

import keras

from keras_bdl import _keras
from keras_bdl.models.bayesian_trainer import BayesianTrainer


def is_functional_call(args, kwargs):
    """Whether `Model(*args, **kwargs)` names inputs and outputs."""
    return (
        len(args) >= 2
        or (len(args) == 1 and "outputs" in kwargs)
        or ("inputs" in kwargs and "outputs" in kwargs)
    )


@functools.cache
def functional_class():
    """Returns the class of Keras's functional models.

    It has no public name, but every functional model is an instance of it.
    """
    tensor = keras.Input((1,), name="probe_input")
    output = keras.layers.Identity(name="probe_layer")(tensor)
    return type(keras.Model(tensor, output, name="probe"))


class _Unannounced:
    """Keeps a twin from being announced to the parents as a subclass."""

    def __init_subclass__(cls, **kwargs):
        pass


@functools.cache
def functional_twin(cls):
    """Returns the functional class derived from `cls`."""
    if issubclass(cls, functional_class()):
        return cls

    def reduce(self):
        # The twin has no name by which another process could find it.
        _, state = super(twin, self).__reduce__()
        return _keras.unpickler(cls), state

    twin = type(
        cls.__name__,
        (_Unannounced, cls, functional_class()),
        {
            "__doc__": cls.__doc__,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__reduce__": reduce,
        },
    )
    # Saved under the name of `cls`, and loaded through `cls`.
    package, _, name = keras.saving.get_registered_name(cls).rpartition(">")
    if package:
        keras.saving.register_keras_serializable(package, name)(twin)
        keras.saving.register_keras_serializable(package, name)(cls)
    return twin


@keras.saving.register_keras_serializable(package="keras_bdl")
class Model(BayesianTrainer, keras.Model):
    """Drop-in for `keras.Model` that Bayesian methods can train.

    With nothing Bayesian in it, it trains bit for bit like `keras.Model`.
    On top of that it

    - counts the training examples N in `fit`, and tells N to the optimizer,
      objective, layers and regularizers whose `dataset_size` was not given;
    - owns the number of Monte-Carlo draws, `compile(train_samples=...,
      samples=...)`;
    - hands the training step to an optimizer or objective that asks for it.

    Where anything asks for N, the loss must be the mean negative
    log-likelihood of the examples: a sum is refused, and a loss that implies a
    certain noise, such as the mean squared error, is a warning. Metrics that
    would misread the outputs, which the compiled loss describes, are refused.

    It is used as `keras.Model` is: `Model(inputs, outputs)`, a subclass with a
    `call`, or a subclass whose `__init__` makes a functional model.

    Args:
        *args: As of `keras.Model`.
        **kwargs: As of `keras.Model`.

    Example:

    ```python
    inputs = keras.Input((28, 28, 1))
    x = keras.layers.Flatten()(inputs)
    model = keras_bdl.Model(inputs, keras.layers.Dense(10)(x))
    ```
    """

    def __new__(cls, *args, **kwargs):
        """Picks the functional twin for inputs and outputs."""
        if cls is Model and is_functional_call(args, kwargs):
            cls = functional_twin(cls)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args, **kwargs):
        if is_functional_call(args, kwargs):
            # Here and not only in `__new__`: the inputs and outputs of a
            # subclass may be made in its own `__init__`.
            self.__class__ = functional_twin(type(self))
            functional_class().__init__(self, *args, **kwargs)
        else:
            super().__init__(*args, **kwargs)
