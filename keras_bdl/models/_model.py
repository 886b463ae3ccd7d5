"""A Keras model that Bayesian methods can train.

Keras turns a subclass of `keras.Model` into a functional model when the class
is called with inputs and outputs: Keras rewrites the bases of the class *and of
all its parents*. After the first `keras_bdl.Model(inputs, outputs)`, every
subclass with its own `call` would also be functional, and fail. This file
therefore makes a twin: a class derived from the subclass and the functional
class. The twin leaves its parents unchanged.
"""

import functools

import keras

from keras_bdl import _keras
from keras_bdl.models._bayesian_trainer import BayesianTrainer


def is_functional_call(args, kwargs):
    """Returns whether `Model(*args, **kwargs)` gets inputs and outputs."""
    return (
        len(args) >= 2
        or (len(args) == 1 and "outputs" in kwargs)
        or ("inputs" in kwargs and "outputs" in kwargs)
    )


@functools.cache
def functional_class():
    """Returns the class of the functional models of Keras.

    The class has no public name. Every functional model is an instance of it.
    """
    tensor = keras.Input((1,), name="probe_input")
    output = keras.layers.Identity(name="probe_layer")(tensor)
    return type(keras.Model(tensor, output, name="probe"))


class _Unannounced:
    """Keeps Python from calling `__init_subclass__` of the twin's parents."""

    def __init_subclass__(cls, **kwargs):
        pass


@functools.cache
def functional_twin(cls):
    """Returns the twin of `cls`, a subclass for functional models.

    Args:
        cls: A subclass of `BayesianTrainer` and of `keras.Model`.
    """
    if issubclass(cls, functional_class()):
        return cls

    def reduce(self):
        # Another process could not find the twin by its name.
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
    # Keras saves the twin under the name of `cls`, and loads `cls`.
    package, _, name = keras.saving.get_registered_name(cls).rpartition(">")
    if package:
        keras.saving.register_keras_serializable(package, name)(twin)
        keras.saving.register_keras_serializable(package, name)(cls)
    return twin


@keras.saving.register_keras_serializable(package="keras_bdl")
class Model(BayesianTrainer, keras.Model):
    """Drop-in for `keras.Model` that Bayesian methods can train.

    Use this class like `keras.Model`: as `Model(inputs, outputs)`, as a
    subclass with a `call`, or as a subclass whose `__init__` makes a
    functional model. Without a Bayesian method, the model trains bit for bit
    like `keras.Model`. The class adds to `keras.Model`:

    - `fit` counts the training examples N, and gives N to the optimizer,
      objective, layers and regularizers without a `dataset_size`. If only
      reading the data tells their size, N is an estimate in the first epoch
      and exact from then on.
    - `compile(train_samples=..., samples=...)` sets the numbers of posterior
      samples in training and in evaluation.
    - An optimizer or objective may run the training step.

    If a method uses N, the loss must be the mean negative log-likelihood of the
    examples. A sum over the batch raises an error. A loss that implies a
    certain noise, such as the mean squared error, gives a warning. The compiled
    loss defines whether the outputs are logits, probabilities, or means and
    deviations. A metric that reads the outputs in another way raises an error.

    Args:
        *args: Arguments of `keras.Model`.
        **kwargs: Arguments of `keras.Model`.

    Example:

    ```python
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Flatten()(inputs)
    model = keras_bdl.Model(inputs, keras.layers.Dense(2)(hidden))
    ```
    """

    def __new__(cls, *args, **kwargs):
        """Makes an object of the functional twin if given inputs and outputs.

        The top of this file describes the functional twin.
        """
        if cls is Model and is_functional_call(args, kwargs):
            cls = functional_twin(cls)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args, **kwargs):
        if is_functional_call(args, kwargs):
            # A subclass may make its inputs and outputs in its `__init__`,
            # after `__new__`.
            self.__class__ = functional_twin(type(self))
            functional_class().__init__(self, *args, **kwargs)
        else:
            super().__init__(*args, **kwargs)
